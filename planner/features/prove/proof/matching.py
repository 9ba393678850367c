"""Matching of a worker's expression with the model's: two expressions, variable by variable.

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
from planner.features.prove.proof.pairing import Constraints, Joined, Literal, Pairing, number_of
from planner.features.prove.proof.placing import MismatchError, Moved, Placed, Read, placed
from planner.graph.core.model import DType

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
        """The place of the local output in the model's, and whether it is whole.

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
        constraints = Constraints()
        terms = Pairing(self._space, self._rounds_to, mine, theirs).terms(local, model, constraints)
        # Each pair is a local variable and its twin in the model, which is the local one plus an offset.
        pairs = [
            (number_of(lin), number_of(model_lin)) for lin, model_lin in zip(mine, theirs, strict=True)
        ] + constraints.pairs
        rooms = {twin: self._space.extents[twin] - self._space.extents[var] for var, twin in pairs}
        if any(room < 0 for room in rooms.values()):
            raise MismatchError("the local op runs further than the model's")
        offsets = self._offsets(constraints, pairs, rooms, theirs, hint)
        self._place_literals(constraints, pairs, rooms, offsets)
        by = {twin: index.plus(_variable(var), index.number(offsets.get(twin, 0))) for var, twin in pairs}
        # A variable that no read depends on may lie anywhere; of the others each must have an offset.
        needed: set[int] = set().union(*(model_lin.variables for _, model_lin in constraints.equations))
        needed.update(number_of(theirs[joined.axis]) for joined in constraints.joined)
        constraints.still.update(
            *(lin.variables for _, acc in constraints.literals for lin in acc.at if isinstance(lin, Lin))
        )
        needed |= constraints.still
        for var, twin in pairs:
            if twin not in offsets and (twin in needed or (var, twin) in constraints.pairs):
                raise MismatchError("it cannot be told where a part lies")
            if twin in constraints.inner and (offsets[twin] or rooms[twin]):
                raise MismatchError("a reduction below another function is not whole")
            if twin in constraints.looked_up and (offsets[twin] or rooms[twin]):
                raise MismatchError("it looks an element up in a part")
        for lin, model_lin in constraints.equations:
            if not index.equal(lin, index.replaced(model_lin, by, self._space), self._space):
                raise MismatchError("an element is read from another place")
        for local_acc, model_acc in constraints.accesses:
            constraints.fixed += self._check_borders(local_acc, model_acc)
        for local_acc, model_acc in constraints.literals:
            self._check_literal(local_acc, model_acc, by)
        for joined in constraints.joined:
            self._check_joined(joined, offsets[number_of(theirs[joined.axis])], by)
        deed = placed(
            terms,
            [number_of(lin) for lin in theirs],
            offsets,
            rooms,
            zip(constraints.reads, (model_lin for _, model_lin in constraints.equations), strict=True),
            [((hinted_by, dim), number_of(lin)) for dim, lin in enumerate(theirs)] if hint is not None else (),
            constraints.fixed,
            constraints.still,
        )
        if deed.partial and deed.partial.reducer is not Reducer.SUM and any(n != 1 for n, _ in terms_of(model)):
            raise MismatchError("a maximum times a number")
        return deed

    def _offsets(
        self,
        constraints: Constraints,
        pairs: Sequence[tuple[int, int]],
        rooms: Mapping[int, int],
        theirs: Sequence[Lin],
        hint: Place | None,
    ) -> dict[int, int]:
        origin = {var: index.number(0) for var, _ in pairs}
        equations = [
            (model_lin, index.replaced(lin, origin, self._space).constant)
            for lin, model_lin in constraints.equations
            if model_lin.variables
        ]
        hint_offsets: dict[int, int] = {}
        if hint is not None and len(hint) == len(theirs):
            hint_offsets = {number_of(lin): place for lin, place in zip(theirs, hint, strict=True) if place is not None}
            if any(not 0 <= place <= rooms[unknown] for unknown, place in hint_offsets.items()):
                hint_offsets = {}
        return index.solve(equations, rooms, hint_offsets, self._space)

    def _place_literals(
        self,
        constraints: Constraints,
        pairs: Sequence[tuple[int, int]],
        rooms: Mapping[int, int],
        offsets: dict[int, int],
    ) -> None:
        """Finds the part of a constant that a worker has by its elements, where nothing else tells the place.

        A constant may repeat itself, as the filters of windows do: a place is one where other equations hold, too.
        """
        by = {twin: index.plus(_variable(var), index.number(offsets.get(twin, 0))) for var, twin in pairs}
        ours = {twin: var for var, twin in pairs}
        for local, model in constraints.literals:
            used: set[int] = set().union(*(lin.variables for lin in model.at if isinstance(lin, Lin)))
            unknown = used - offsets.keys()
            # Two unknowns would be a search over pairs of places; an earlier constant may have settled one.
            if len(unknown) != 1:
                continue
            [twin] = unknown
            equations = [
                pair
                for pair in constraints.equations
                if twin in pair[1].variables and pair[1].variables <= {*offsets, twin}
            ]
            for place in range(min(rooms[twin], _MOST_TRIED) + 1):
                by[twin] = index.plus(_variable(ours[twin]), index.number(place))
                if not all(
                    index.equal(lin, index.replaced(model_lin, by, self._space), self._space)
                    for lin, model_lin in equations
                ):
                    continue
                try:
                    self._check_literal(local, model, by)
                except MismatchError:
                    continue
                offsets[twin] = place
                break

    def _check_borders(self, local: Acc, model: Acc) -> list[Read]:
        """Checks that both read the tensor, and the fill, at the same places; gives the places that this rests on."""
        if local.fill is not None and model.fill is not None and local.fill != model.fill:
            raise MismatchError("padding has another value")
        has_fill = local.fill is not None and model.fill is not None
        looked_at: list[Read] = []
        for dim, at in enumerate(local.at):
            if local.origin >= 0 and (has_fill or not isinstance(at, Lin)):
                looked_at.append((local.origin, dim))
            if not isinstance(at, Lin):
                continue
            low, high = index.reach(at, self._space)
            lo = local.lo[dim]
            if lo is None:
                if local.fill is not None or model.fill is not None:
                    raise MismatchError("padding along a dim without a place")
                continue
            hi, size = lo + local.held[dim], local.sizes[dim]
            if has_fill:
                is_short = (low <= lo - 1 and high >= 0 and lo > 0) or (low <= size - 1 and high >= hi and hi < size)
            else:
                is_short = low < lo or high >= hi
            if is_short:
                raise MismatchError(f"it has [{lo}:{hi}] of a dim and reads [{int(low)}:{int(high) + 1}]")
        return looked_at

    def _check_joined(self, joined: Joined, offset: int, by: Mapping[int, Lin]) -> None:
        (start, size), (first, all_of_it) = joined.mine, joined.theirs
        shift = offset + start - first
        if shift < 0 or shift + size > all_of_it:
            raise MismatchError("a part is joined at another place")
        if isinstance(joined.local, Acc) and isinstance(joined.local.tensor, Literal) and isinstance(joined.model, Acc):
            along = self._space.variable(size)
            mine, theirs = list(joined.local.at), list(joined.model.at)
            mine[joined.axis], theirs[joined.axis] = along, index.plus(along, index.number(shift))
            self._check_literal(replace(joined.local, at=tuple(mine)), replace(joined.model, at=tuple(theirs)), by)

    def _check_literal(self, local: Acc, model: Acc, by: Mapping[int, Lin]) -> None:
        assert isinstance(local.tensor, Literal), "pairs of literals are kept apart"
        assert isinstance(model.tensor, Literal), "pairs of literals are kept apart"
        lins = [
            (local_at, index.replaced(model_at, by, self._space) if isinstance(model_at, Lin) else model_at)
            for local_at, model_at in zip(local.at, model.at, strict=True)
        ]
        ours, theirs = local.tensor.array, model.tensor.array
        at_ours: list[Lin] = []
        at_theirs: list[Lin] = []
        for dim, (local_at, model_at) in enumerate(lins):
            if isinstance(local_at, Lin) and isinstance(model_at, Lin):
                at_ours.append(local_at)
                at_theirs.append(model_at)
            # Both read all of the dim: a variable of its own runs through it.
            elif local_at is None and model_at is None and ours.shape[dim] == theirs.shape[dim]:
                at_ours.append(self._space.variable(ours.shape[dim]))
                at_theirs.append(at_ours[-1])
            else:
                raise MismatchError("a constant that the data index")
        used: list[int] = sorted(set().union(*(lin.variables for lin in (*at_ours, *at_theirs))))
        shape = [self._space.extents[variable] for variable in used]
        if prod(shape) > 16 * index.MOST_PLACES:
            raise MismatchError("a constant is too large to be compared")
        places = dict(zip(used, np.indices(shape, dtype=np.int64), strict=True))
        local_elements, model_elements = (
            np.broadcast_to(_elements(array, [index.values_at(lin, places) for lin in at], fill), shape)
            for array, fill, at in ((ours, local.fill, at_ours), (theirs, model.fill, at_theirs))
        )
        if local_elements.dtype != model_elements.dtype or local_elements.tobytes() != model_elements.tobytes():
            raise MismatchError("a constant has other elements")


def _elements(array: np.ndarray, at: Sequence[np.ndarray], fill: float | None) -> np.ndarray:
    """The elements of a constant at places, and the fill around it."""
    inside = [(place >= 0) & (place < size) for place, size in zip(at, array.shape, strict=True)]
    is_in = np.logical_and.reduce(np.broadcast_arrays(*inside)) if inside else np.True_
    if fill is None and not is_in.all():
        raise MismatchError("a constant is read beyond its end")
    elements = array[tuple(np.clip(place, 0, size - 1) for place, size in zip(at, array.shape, strict=True))]
    with np.errstate(all="ignore"):
        return elements if fill is None else np.where(is_in, elements, np.array(fill).astype(array.dtype))


def _variable(number: int) -> Lin:
    return Lin(((number, Fraction(1)),), Fraction(0))


def moved(local: Expr, mine: Sequence[Lin], space: Space) -> tuple[Claim, Moved] | None:
    """The claim of an output that is a part of an array, moved as it is; None if it is anything else."""
    if not isinstance(local, Acc) or len(local.at) != len(mine) or isinstance(local.tensor, Literal):
        return None
    lo: list[int | None] = []
    for dim, (at, variable) in enumerate(zip(local.at, mine, strict=True)):
        first = local.lo[dim]
        if not isinstance(at, Lin):
            return None
        low, high = index.reach(at, space)
        if low < (first or 0) or high >= (first or 0) + local.held[dim]:
            return None  # the fill is read
        if first is None:
            lo.append(None)
            continue
        start = index.plus(at, index.times(variable, Fraction(-1)))
        if start.terms:
            if space.extents[number_of(variable)] != 1 or at.terms:
                return None
            start = at
        if start.constant.denominator != 1:
            return None
        lo.append(int(start.constant))
    claim = Claim(local.tensor, tuple(lo), tuple(space.extents[number_of(lin)] for lin in mine), local.partial)
    return claim, Moved(claim.lo, (local.origin,))


def summed(local: Expr, mine: Sequence[Lin], space: Space) -> tuple[Claim, Moved] | None:
    """The claim of an output that adds contributions to one tensor; None if it is anything else."""
    if not isinstance(local, Total) or any(factor != 1 for factor, _ in local.terms):
        return None
    moves = [moved(term, mine, space) for _, term in local.terms]
    claims = [claim for claim, _ in filter(None, moves)]
    partials = [claim.partial for claim in claims if claim.partial is not None and claim.partial.reducer is Reducer.SUM]
    if len(partials) < len(moves) or len({(claim.tensor, claim.lo) for claim in claims}) > 1:
        return None
    together = partials[0].with_others(partials[1:])
    if isinstance(together, str):
        raise MismatchError(together)
    claim = replace(claims[0], partial=None if together.is_whole else together)
    return claim, Moved(claim.lo, tuple(origin for _, move in filter(None, moves) for origin in move.origins))
