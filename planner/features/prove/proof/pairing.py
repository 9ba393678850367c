"""Two expressions paired, tree against tree: which indices must then be equal, and what else must hold.

Pairs are of one kind: the same tensors, functions and reductions, with numbers that are equal. Nothing is said of
places yet: what was found is equations between indices, and what is to be looked at once offsets are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from planner.algebra.tiling import Reducer
from planner.features.prove.proof import index
from planner.features.prove.proof.expression import (
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
from planner.features.prove.proof.index import Lin, Space
from planner.features.prove.proof.placing import MismatchError, Read, Term
from planner.graph.model import DType


@dataclass(frozen=True, slots=True)
class Literal:
    """An array that a worker's file holds, or a constant of the model, by content."""

    digest: str
    array: np.ndarray = field(compare=False)

    def __str__(self) -> str:
        return "a constant"


@dataclass(frozen=True, slots=True)
class Joined:
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
class Found:
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
    joined: list[Joined] = field(default_factory=list)
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

    def copy(self) -> Found:
        return Found(**{name: value.copy() for name, value in vars(self).items()})


class Pairing:
    """Pairs the expressions of one output.

    Args:
        space: of all variables.
        rounds_to: the float dtype that all numbers of the op are used in; None if there is none.
        mine: the local output's variables, by dim.
        theirs: the model's.
    """

    def __init__(self, space: Space, rounds_to: DType | None, mine: Sequence[Lin], theirs: Sequence[Lin]) -> None:
        self._space = space
        self._rounds_to = None if rounds_to is None else rounds_to.array_dtype
        self._mine, self._theirs = mine, theirs

    def terms(self, local: Expr, model: Expr, found: Found) -> list[Term]:
        """The model's terms, with those of the local sum that are parts of them.

        Args:
            local: of the worker's element.
            model: of the model's.
            found: what pairing them gives is added.

        Raises:
            MismatchError: they are not one tree.
        """
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

    def _term(self, number: int, local: Expr, model: Expr, found: Found) -> Term | None:
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

    def _pair(self, local: Expr, model: Expr, found: Found) -> bool:
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

    def _pair_all(self, ours: Sequence[Expr], theirs: Sequence[Expr], found: Found) -> bool:
        return len(ours) == len(theirs) and all(
            self._pair(one, two, found) for one, two in zip(ours, theirs, strict=True)
        )

    def _pair_joined(self, local: Expr, model: Sequence[Expr], joins: Joins, found: Found) -> bool:
        """Concat: what is joined here are parts of what the model joins, each at its own place.

        Where a part lies is told by how it is read. Of what is the same everywhere along the dim, and of constants, it
        is told by where it begins here and in the model (``_check_joined``).
        """
        axis = joins.axis
        found.still.add(number_of(self._theirs[axis]))
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
            found.joined.append(Joined(mine, theirs, axis, (start, size), joins.places[chosen[0]]))
        return is_direct or not found.joined

    def _pair_access(self, local: Acc, model: Acc, found: Found) -> bool:
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


def number_of(lin: Lin) -> int:
    """The variable that an output's or a reduction's index is."""
    found = index.variable_of(lin)
    if found is None:
        raise UnprovenError("an output's variable")
    return found
