"""Whether what a worker computes is a part of what the model computes: two expressions, variable by variable.

The local expression and the model's must be one tree: the same tensors, functions and reductions. Each pair of indices
is an equation; the model's variable is the local one plus an offset. Offsets are proposed by ``index.solve``, and then
every equation is checked on the whole box. What is called equal is equal; what is not may only not have been seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod

import numpy as np

from planner.algebra.tiling import Reducer
from planner.features.prove.proof import index
from planner.features.prove.proof.claims import Claim, Place
from planner.features.prove.proof.expression import (
    Acc,
    Expr,
    Total,
    terms_of,
)
from planner.features.prove.proof.index import Lin, Space
from planner.features.prove.proof.pairing import Found, Joined, Literal, Pairing, number_of
from planner.features.prove.proof.placing import MismatchError, Moved, Placed, Read, placed
from planner.graph.model import DType

_MOST_TRIED = 1 << 12
"""Places at which a part of a constant is looked for."""


class Matching:
    """Compares the expressions of one output.

    Args:
        space: of all variables.
        rounds_to: the float dtype that all numbers of the op are used in; None if there is none.
    """

    def __init__(self, space: Space, rounds_to: DType | None) -> None:
        self._space = space
        self._rounds_to = rounds_to

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
        found = Found()
        terms = Pairing(self._space, self._rounds_to, mine, theirs).terms(local, model, found)
        pairs = [(number_of(one), number_of(two)) for one, two in zip(mine, theirs, strict=True)] + found.pairs
        rooms = {two: self._space.extents[two] - self._space.extents[one] for one, two in pairs}
        if any(room < 0 for room in rooms.values()):
            raise MismatchError("the local op runs further than the model's")
        offsets = self._offsets(found, pairs, rooms, theirs, hint)
        self._place_literals(found, pairs, rooms, offsets)
        by = {two: index.plus(_variable(one), index.number(offsets.get(two, 0))) for one, two in pairs}
        needed: set[int] = set().union(*(two.variables for _, two in found.equations))
        needed.update(number_of(theirs[one.axis]) for one in found.joined)
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
            self._check_joined(one_joined, offsets[number_of(theirs[one_joined.axis])], by)
        made = placed(
            terms,
            [number_of(two) for two in theirs],
            offsets,
            rooms,
            zip(found.reads, (two for _, two in found.equations), strict=True),
            [((hinted_by, dim), number_of(two)) for dim, two in enumerate(theirs)] if hint is not None else (),
            found.fixed,
            found.still,
        )
        if made.partial and made.partial.reducer is not Reducer.SUM and any(n != 1 for n, _ in terms_of(model)):
            raise MismatchError("a maximum times a number")
        return made

    def _offsets(
        self,
        found: Found,
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
            known = {number_of(lin): place for lin, place in zip(theirs, hint, strict=True) if place is not None}
            if any(not 0 <= place <= rooms[unknown] for unknown, place in known.items()):
                known = {}
        return index.solve(equations, rooms, known, self._space)

    def _place_literals(
        self, found: Found, pairs: Sequence[tuple[int, int]], rooms: Mapping[int, int], offsets: dict[int, int]
    ) -> None:
        """Finds the part of a constant that a worker has by its elements, where nothing else tells the place.

        A constant may repeat itself, as the filters of windows do: a place is one where other equations hold, too.
        """
        by = {two: index.plus(_variable(one), index.number(offsets.get(two, 0))) for one, two in pairs}
        ours = {two: one for one, two in pairs}
        for local, model in found.literals:
            used: set[int] = set().union(*(one.variables for one in model.at if isinstance(one, Lin)))
            unknown = used - offsets.keys()
            if len(unknown) != 1:
                continue
            [two] = unknown
            others = [one for one in found.equations if two in one[1].variables and one[1].variables <= {*offsets, two}]
            for place in range(min(rooms[two], _MOST_TRIED) + 1):
                by[two] = index.plus(_variable(ours[two]), index.number(place))
                if not all(
                    index.equal(mine, index.replaced(its, by, self._space), self._space) for mine, its in others
                ):
                    continue
                try:
                    self._check_literal(local, model, by)
                except MismatchError:
                    continue
                offsets[two] = place
                break

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

    def _check_joined(self, one: Joined, offset: int, by: Mapping[int, Lin]) -> None:
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
            np.broadcast_to(_elements(array, [index.values_at(one, places) for one in at], fill), shape)
            for array, fill, at in ((ours, local.fill, at_ours), (theirs, model.fill, at_theirs))
        )
        if mine.dtype != other.dtype or mine.tobytes() != other.tobytes():
            raise MismatchError("a constant has other elements")


def _elements(array: np.ndarray, at: Sequence[np.ndarray], fill: float | None) -> np.ndarray:
    """The elements of a constant at places, and the fill around it."""
    inside = [(one >= 0) & (one < size) for one, size in zip(at, array.shape, strict=True)]
    is_in = np.logical_and.reduce(np.broadcast_arrays(*inside)) if inside else np.True_
    if fill is None and not is_in.all():
        raise MismatchError("a constant is read beyond its end")
    found = array[tuple(np.clip(one, 0, size - 1) for one, size in zip(at, array.shape, strict=True))]
    with np.errstate(all="ignore"):
        return found if fill is None else np.where(is_in, found, np.array(fill).astype(array.dtype))


def _variable(number: int) -> Lin:
    return Lin(((number, Fraction(1)),), Fraction(0))


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
            if space.extents[number_of(variable)] != 1 or one.terms:
                return None
            rest = one
        if rest.constant.denominator != 1:
            return None
        lo.append(int(rest.constant))
    claim = Claim(local.tensor, tuple(lo), tuple(space.extents[number_of(one)] for one in mine), local.partial)
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
