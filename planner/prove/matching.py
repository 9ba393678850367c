"""Whether what a worker computes is a part of what the model computes: two expressions, variable by variable.

The local expression and the model's must be one tree: the same tensors, functions and reductions. Each pair of indices
is an equation; the model's variable is the local one plus an offset. Offsets are proposed by ``index.solve``, and then
every equation is checked on the whole box. What is called equal is equal; what is not may only not have been seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import prod

import numpy as np

from planner.algebra.tiling import Reducer
from planner.graph.model import DType
from planner.prove import index
from planner.prove.claims import Claim, Place
from planner.prove.expression import (
    Acc,
    App,
    Expr,
    Hit,
    Joins,
    Num,
    Opq,
    Pos,
    Red,
    Times,
    Total,
    UnprovenError,
    terms_of,
)
from planner.prove.index import Lin, Space
from planner.prove.placing import MismatchError, Moved, Placed, Read, Term, placed

_MOST_TRIED = 1 << 12
"""Places at which a part of a constant is looked for."""


@dataclass(frozen=True, slots=True)
class Literal:
    """An array that a worker's file holds, or a constant of the model, by content."""

    digest: str
    array: np.ndarray = field(compare=False)

    def __str__(self) -> str:
        return "a constant"


@dataclass(frozen=True, slots=True)
class _Joined:
    """A part of a Concat whose place is not told by how it is read."""

    local: Expr
    model: Expr
    axis: int
    mine: tuple[int, int]
    """Where it begins along the axis here, and its size."""
    theirs: tuple[int, int]


def _may_join(local: Expr, model: Expr) -> bool:
    if isinstance(local, Acc) and isinstance(model, Acc):
        if isinstance(local.tensor, Literal):
            return isinstance(model.tensor, Literal)
        return local.tensor == model.tensor
    return isinstance(local, Num) and local == model


@dataclass
class _Found:
    """What pairing two trees has given so far."""

    equations: list[tuple[Lin, Lin]] = field(default_factory=list)
    reads: list[Read | None] = field(default_factory=list)
    """By equation, the claim and the dim of it that is read; None: an index that is a value."""
    fixed: list[Read] = field(default_factory=list)
    """Of claims, dims whose places were looked at."""
    still: set[int] = field(default_factory=set)
    """Of the model's variables, those whose places were."""
    accesses: list[tuple[Acc, Acc]] = field(default_factory=list)
    literals: list[tuple[Acc, Acc]] = field(default_factory=list)
    joined: list[_Joined] = field(default_factory=list)
    pairs: list[tuple[int, int]] = field(default_factory=list)
    """Reduction variables, the local one and the model's."""
    inner: set[int] = field(default_factory=set)
    """Of the model's: those that are not reduced outermost, and so must be whole."""
    looked_up: set[int] = field(default_factory=set)
    """Of the model's: those that a value is compared with, and so must be whole: ONNX counts an index below 0 from the
    end of what it has, so that one op on a part finds other elements there. Parts are proven by their local rules."""

    def equate(self, one: Lin, two: Lin, read: Read | None = None) -> None:
        self.equations.append((one, two))
        self.reads.append(read if read is not None and read[0] >= 0 else None)

    def copy(self) -> _Found:
        return _Found(**{name: value.copy() for name, value in vars(self).items()})


class Matching:
    """Compares the expressions of one output.

    Args:
        space: of all variables.
        rounds_to: the float dtype that all numbers of the op are used in; None if there is none.
    """

    def __init__(self, space: Space, rounds_to: DType | None) -> None:
        self._space = space
        self._rounds_to = None if rounds_to is None else rounds_to.array_dtype
        self._mine: Sequence[Lin] = ()
        self._theirs: Sequence[Lin] = ()

    def placed(
        self,
        local: Expr,
        mine: Sequence[Lin],
        model: Expr,
        theirs: Sequence[Lin],
        hint: Place | None = None,
        hinted_by: int = -1,
    ) -> Placed:
        """Where the local output lies in the model's, and whether it is whole.

        Args:
            local: of the local output's element at ``mine``.
            mine: the local output's variables, by dim.
            model: of the model's element at ``theirs``.
            theirs: the model's variables.
            hint: where it may lie.
            hinted_by: the number of the claim that says so.

        Raises:
            MismatchError: they are not seen to be equal.
        """
        if len(mine) != len(theirs):
            raise MismatchError("ranks differ", is_alike=False)
        self._mine, self._theirs = mine, theirs
        found = _Found()
        terms = self._terms(local, model, found)
        pairs = [(_number(one), _number(two)) for one, two in zip(mine, theirs, strict=True)] + found.pairs
        rooms = {two: self._space.extents[two] - self._space.extents[one] for one, two in pairs}
        if any(room < 0 for room in rooms.values()):
            raise MismatchError("the local op runs further than the model's")
        offsets = self._offsets(found, pairs, rooms, theirs, hint)
        self._place_literals(found, pairs, rooms, offsets)
        by = {two: index.plus(_variable(one), index.number(offsets.get(two, 0))) for one, two in pairs}
        needed: set[int] = set().union(*(two.variables for _, two in found.equations))
        needed.update(_number(theirs[one.axis]) for one in found.joined)
        found.still.update(*(one.variables for _, two in found.literals for one in two.at if isinstance(one, Lin)))
        needed |= found.still
        for one, two in pairs:
            if two not in offsets and (two in needed or (one, two) in found.pairs):
                raise MismatchError("it cannot be told where a part lies")
            if two in found.inner and (offsets[two] or rooms[two]):
                raise MismatchError("a reduction below another function is not whole")
            if two in found.looked_up and (offsets[two] or rooms[two]):
                raise MismatchError("it looks an element up in a part")
        for one_lin, two_lin in found.equations:
            if not index.equal(one_lin, index.replaced(two_lin, by, self._space), self._space):
                raise MismatchError("an element is read from another place")
        for one_acc, two_acc in found.accesses:
            found.fixed += self._check_borders(one_acc, two_acc)
        for one_acc, two_acc in found.literals:
            self._check_literal(one_acc, two_acc, by)
        for one_joined in found.joined:
            self._check_joined(one_joined, offsets[_number(theirs[one_joined.axis])], by)
        made = placed(
            terms,
            [_number(two) for two in theirs],
            offsets,
            rooms,
            zip(found.reads, (two for _, two in found.equations), strict=True),
            [((hinted_by, dim), _number(two)) for dim, two in enumerate(theirs)] if hint is not None else (),
            found.fixed,
            found.still,
        )
        if made.partial and made.partial.reducer is not Reducer.SUM and any(n != 1 for n, _ in terms_of(model)):
            raise MismatchError("a maximum times a number")
        return made

    def _offsets(
        self,
        found: _Found,
        pairs: Sequence[tuple[int, int]],
        rooms: Mapping[int, int],
        theirs: Sequence[Lin],
        hint: Place | None,
    ) -> dict[int, int]:
        origin = {one: index.number(0) for one, _ in pairs}
        equations = [
            (two, index.replaced(one, origin, self._space).constant) for one, two in found.equations if two.variables
        ]
        known: dict[int, int] = {}
        if hint is not None and len(hint) == len(theirs):
            known = {_number(lin): place for lin, place in zip(theirs, hint, strict=True) if place is not None}
            if any(not 0 <= place <= rooms[unknown] for unknown, place in known.items()):
                known = {}
        return index.solve(equations, rooms, known, self._space)

    def _place_literals(
        self, found: _Found, pairs: Sequence[tuple[int, int]], rooms: Mapping[int, int], offsets: dict[int, int]
    ) -> None:
        """Finds the part of a constant that a worker has by its elements, where nothing else tells the place."""
        by = {two: index.plus(_variable(one), index.number(offsets.get(two, 0))) for one, two in pairs}
        ours = {two: one for one, two in pairs}
        for local, model in found.literals:
            used: set[int] = set().union(*(one.variables for one in model.at if isinstance(one, Lin)))
            unknown = used - offsets.keys()
            if len(unknown) != 1:
                continue
            [two] = unknown
            for place in range(min(rooms[two], _MOST_TRIED) + 1):
                by[two] = index.plus(_variable(ours[two]), index.number(place))
                try:
                    self._check_literal(local, model, by)
                except MismatchError:
                    continue
                offsets[two] = place
                break

    # Pairing trees.

    def _terms(self, local: Expr, model: Expr, found: _Found) -> list[Term]:
        ours, theirs = terms_of(local), terms_of(model)
        free = list(range(len(theirs)))
        terms: list[Term] = []
        for factor, term in ours:
            for number in free:
                trial = found.copy()
                if not self._close(factor, theirs[number][0]):
                    continue
                made = self._term(number, term, theirs[number][1], trial)
                if made is not None:
                    vars(found).update(vars(trial))
                    terms.append(made)
                    free.remove(number)
                    break
            else:
                raise MismatchError("it computes something else", is_alike=False)
        for number in free:
            value = theirs[number][1]
            variables = value.variables if isinstance(value, Red) and value.reducer is Reducer.SUM else ()
            terms.append(Term(number, None, (), (), self._extents(variables), is_there=False))
        return terms

    def _extents(self, variables: Sequence[int]) -> tuple[int, ...]:
        return tuple(self._space.extents[variable] for variable in variables)

    def _term(self, number: int, local: Expr, model: Expr, found: _Found) -> Term | None:
        reducer: Reducer | None = None
        variables: tuple[int, ...] = ()
        sizes: tuple[int, ...] = ()
        inner_local, inner_model = local, model
        if isinstance(local, Red) and isinstance(model, Red) and local.reducer is model.reducer:
            if len(local.variables) != len(model.variables):
                return None
            reducer, variables, sizes = model.reducer, model.variables, self._extents(local.variables)
            found.pairs.extend(zip(local.variables, model.variables, strict=True))
            inner_local, inner_model = local.body, model.body
        before = len(found.accesses)
        if not self._pair(inner_local, inner_model, found):
            return None
        made = Term(number, reducer, variables, sizes, self._extents(variables))
        partials = [(acc.partial, acc.origin) for acc, _ in found.accesses[before:] if acc.partial is not None]
        if not partials:
            return made
        if any(acc.partial is not None and acc.fill for acc, _ in found.accesses[before:]):
            raise MismatchError("a partial result is padded")
        factors = inner_local.factors if isinstance(inner_local, Times) else (inner_local,)
        direct = sum(isinstance(factor, Acc) and factor.partial is not None for factor in factors)
        if len(partials) != 1 or direct != 1:
            raise MismatchError("a partial result is read by what is not linear in it")
        partial, origin = partials[0]
        if partial.reducer is not Reducer.SUM and (reducer is not None or len(factors) > 1):
            raise MismatchError("a partial maximum is read by what is not its like")
        if reducer not in (None, Reducer.SUM):
            raise MismatchError("a partial result is read by what is not linear in it")
        return replace(made, partial=partial, origin=origin)

    def _pair(self, local: Expr, model: Expr, found: _Found) -> bool:
        if isinstance(model, App) and isinstance(model.tag, Joins):
            return self._pair_joined(local, model.arguments, model.tag, found)
        match local, model:
            case Num(one), Num(two):
                return self._close(one, two)
            case Acc(), Acc():
                return self._pair_access(local, model, found)
            case App(one_tag, one), App(two_tag, two):
                return one_tag == two_tag and self._pair_all(one, two, found)
            case Red(one_reducer, one_variables, one), Red(two_reducer, two_variables, two):
                if one_reducer is not two_reducer or len(one_variables) != len(two_variables):
                    return False
                found.pairs.extend(zip(one_variables, two_variables, strict=True))
                found.inner.update(two_variables)
                return self._pair(one, two, found)
            case Opq(one_tag, one, one_at), Opq(two_tag, two, two_at):
                if one_tag != two_tag or len(one_at) != len(two_at) or not self._pair_all(one, two, found):
                    return False
                for one_index, two_index in zip(one_at, two_at, strict=True):
                    if one_index is not None and two_index is not None:
                        found.equate(one_index, two_index)
                    elif one_index is not two_index:
                        return False
                return True
            case Pos(one_index), Pos(two_index):
                found.equate(one_index, two_index)
                return True
            case Hit(one, one_index), Hit(two, two_index):
                found.equate(one_index, two_index)
                found.looked_up |= set(two_index.variables)
                return self._pair(one, two, found)
            case Total(one), Total(two):
                return (
                    len(one) == len(two)
                    and all(self._close(a, b) for (a, _), (b, _) in zip(one, two, strict=True))
                    and self._pair_all([term for _, term in one], [term for _, term in two], found)
                )
            case Times(one), Times(two):
                return self._pair_all(one, two, found)
        return False

    def _pair_all(self, ours: Sequence[Expr], theirs: Sequence[Expr], found: _Found) -> bool:
        return len(ours) == len(theirs) and all(
            self._pair(one, two, found) for one, two in zip(ours, theirs, strict=True)
        )

    def _pair_joined(self, local: Expr, model: Sequence[Expr], joins: Joins, found: _Found) -> bool:
        """Concat: what is joined here are parts of what the model joins, each at its own place.

        Where a part lies is told by how it is read. Of what is the same everywhere along the dim, and of constants, it
        is told by where it begins here and in the model (``_check_joined``).
        """
        axis = joins.axis
        found.still.add(_number(self._theirs[axis]))
        ours = local.arguments if isinstance(local, App) else (local,)
        found.fixed += [(one.origin, axis) for one in ours if isinstance(one, Acc) and one.origin >= 0]
        if not (isinstance(local, App) and isinstance(local.tag, Joins) and local.tag.axis == axis):
            if not isinstance(local, Acc) or isinstance(local.tensor, Literal) or local.lo[axis] is None:
                return False
            like = [one for one in model if isinstance(one, Acc) and one.tensor == local.tensor]
            return bool(like) and local.partial is None and self._pair(local, like[0], found)
        free = list(range(len(model)))
        is_direct = False
        for mine, (start, size) in zip(local.arguments, local.tag.places, strict=True):
            chosen = [n for n in free if _may_join(mine, model[n])]
            if not chosen or (isinstance(mine, Acc) and mine.partial):
                return False
            free.remove(chosen[0])
            theirs = model[chosen[0]]
            if isinstance(mine, Acc) and isinstance(theirs, Acc) and not isinstance(mine.tensor, Literal):
                if not self._pair(mine, theirs, found):
                    return False
                found.accesses.pop()  # beyond its array another one is taken, here and in the model
                first, at = mine.lo[axis], mine.at[axis]
                if first is not None:
                    wanted = index.plus(self._mine[axis], index.number(first - start))
                    is_direct = is_direct or at == wanted
                    continue
            found.joined.append(_Joined(mine, theirs, axis, (start, size), joins.places[chosen[0]]))
        return is_direct or not found.joined

    def _pair_access(self, local: Acc, model: Acc, found: _Found) -> bool:
        if isinstance(local.tensor, Literal):
            if not isinstance(model.tensor, Literal) or len(model.at) != len(local.at):
                return False
            found.literals.append((local, model))
            return True
        if local.tensor != model.tensor or len(local.at) != len(model.at):
            return False
        for dim, (one, two) in enumerate(zip(local.at, model.at, strict=True)):
            if isinstance(one, Lin) and isinstance(two, Lin):
                if local.lo[dim] is not None:
                    found.equate(one, two, (local.origin, dim))
                continue
            is_whole = local.held[dim] == local.sizes[dim] and local.lo[dim] in (0, None)
            if not is_whole:
                return False
            if isinstance(one, Acc) and isinstance(two, Acc):
                if not self._pair(one, two, found):
                    return False
            elif one is not None or two is not None:
                return False
        found.accesses.append((local, model))
        return True

    def _close(self, one: float, two: float) -> bool:
        """Whether two numbers are equal, or near and finite and the same as the dtype has them."""
        if one == two or self._rounds_to is None or not abs(one - two) <= 0.01 * abs(two):
            return one == two
        with np.errstate(all="ignore"):
            first, second = (np.asarray(number).astype(self._rounds_to).astype(np.float64) for number in (one, two))
        return bool(np.isfinite(first) and first == second)

    # Checks once offsets are there.

    def _check_borders(self, local: Acc, model: Acc) -> list[Read]:
        """Both read the tensor where the other does, and the fill where the other does; which places that rests on."""
        if local.fill is not None and model.fill is not None and local.fill != model.fill:
            raise MismatchError("padding has another value")
        both = local.fill is not None and model.fill is not None
        looked_at: list[Read] = []
        for dim, one in enumerate(local.at):
            if local.origin >= 0 and (both or not isinstance(one, Lin)):
                looked_at.append((local.origin, dim))
            if not isinstance(one, Lin):
                continue
            low, high = index.reach(one, self._space)
            lo = local.lo[dim]
            if lo is None:
                if local.fill is not None or model.fill is not None:
                    raise MismatchError("padding along a dim without a place")
                continue
            hi, size = lo + local.held[dim], local.sizes[dim]
            if both:
                is_short = (low <= lo - 1 and high >= 0 and lo > 0) or (low <= size - 1 and high >= hi and hi < size)
            else:
                is_short = low < lo or high >= hi
            if is_short:
                raise MismatchError(f"it has [{lo}:{hi}] of a dim and reads [{int(low)}:{int(high) + 1}]")
        return looked_at

    def _check_joined(self, one: _Joined, offset: int, by: Mapping[int, Lin]) -> None:
        (start, size), (first, all_of_it) = one.mine, one.theirs
        shift = offset + start - first
        if shift < 0 or shift + size > all_of_it:
            raise MismatchError("a part is joined at another place")
        if isinstance(one.local, Acc) and isinstance(one.local.tensor, Literal) and isinstance(one.model, Acc):
            along = self._space.variable(size)
            mine, theirs = list(one.local.at), list(one.model.at)
            mine[one.axis], theirs[one.axis] = along, index.plus(along, index.number(shift))
            self._check_literal(replace(one.local, at=tuple(mine)), replace(one.model, at=tuple(theirs)), by)

    def _check_literal(self, local: Acc, model: Acc, by: Mapping[int, Lin]) -> None:
        assert isinstance(local.tensor, Literal), "pairs of literals are kept apart"
        assert isinstance(model.tensor, Literal), "pairs of literals are kept apart"
        if local.fill is not None or model.fill is not None:
            raise MismatchError("a constant that is padded")
        lins = [
            (one, index.replaced(two, by, self._space) if isinstance(two, Lin) else two)
            for one, two in zip(local.at, model.at, strict=True)
        ]
        ours, theirs = local.tensor.array, model.tensor.array
        at_ours: list[Lin] = []
        at_theirs: list[Lin] = []
        for dim, (one, two) in enumerate(lins):
            if isinstance(one, Lin) and isinstance(two, Lin):
                at_ours.append(one)
                at_theirs.append(two)
            elif one is None and two is None and ours.shape[dim] == theirs.shape[dim]:
                at_ours.append(self._space.variable(ours.shape[dim]))
                at_theirs.append(at_ours[-1])
            else:
                raise MismatchError("a constant that the data index")
        used: list[int] = sorted(set().union(*(one.variables for one in (*at_ours, *at_theirs))))
        shape = [self._space.extents[variable] for variable in used]
        if prod(shape) > 16 * index.MOST_PLACES:
            raise MismatchError("a constant is too large to be compared")
        places = dict(zip(used, np.indices(shape, dtype=np.int64), strict=True))
        mine, other = (
            np.broadcast_to(array[tuple(index.values_at(one, places) for one in at)], shape)
            for array, at in ((ours, at_ours), (theirs, at_theirs))
        )
        if mine.dtype != other.dtype or mine.tobytes() != other.tobytes():
            raise MismatchError("a constant has other elements")


def _variable(number: int) -> Lin:
    return Lin(((number, Fraction(1)),), Fraction(0))


def _number(lin: Lin) -> int:
    found = index.variable_of(lin)
    if found is None:
        raise UnprovenError("an output's variable")
    return found


def moved(local: Expr, mine: Sequence[Lin], space: Space) -> tuple[Claim, Moved] | None:
    """The claim of an output that is a part of an array, moved as it is; None if it is anything else."""
    if not isinstance(local, Acc) or len(local.at) != len(mine) or isinstance(local.tensor, Literal):
        return None
    lo: list[int | None] = []
    for dim, (one, variable) in enumerate(zip(local.at, mine, strict=True)):
        first = local.lo[dim]
        if not isinstance(one, Lin):
            return None
        low, high = index.reach(one, space)
        if low < (first or 0) or high >= (first or 0) + local.held[dim]:
            return None  # the fill is read
        if first is None:
            lo.append(None)
            continue
        rest = index.plus(one, index.times(variable, Fraction(-1)))
        if rest.terms:
            if space.extents[_number(variable)] != 1 or one.terms:
                return None
            rest = one
        if rest.constant.denominator != 1:
            return None
        lo.append(int(rest.constant))
    claim = Claim(local.tensor, tuple(lo), tuple(space.extents[_number(one)] for one in mine), local.partial)
    return claim, Moved(claim.lo, (local.origin,))


def summed(local: Expr, mine: Sequence[Lin], space: Space) -> tuple[Claim, Moved] | None:
    """The claim of an output that adds contributions to one tensor; None if it is anything else."""
    if not isinstance(local, Total) or any(factor != 1 for factor, _ in local.terms):
        return None
    found = [moved(term, mine, space) for _, term in local.terms]
    claims = [claim for claim, _ in filter(None, found)]
    partials = [one.partial for one in claims if one.partial is not None and one.partial.reducer is Reducer.SUM]
    if len(partials) < len(found) or len({(one.tensor, one.lo) for one in claims}) > 1:
        return None
    together = partials[0].with_others(partials[1:])
    if isinstance(together, str):
        raise MismatchError(together)
    claim = replace(claims[0], partial=None if together.is_whole else together)
    return claim, Moved(claim.lo, tuple(one for _, made in filter(None, found) for one in made.origins))
