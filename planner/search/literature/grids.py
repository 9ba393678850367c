"""Processor grids as a restriction: each product and convolution on the grid that moves least for it alone.

SPAA'21, section 2.2: from the closed form of the costs follow the ways of each variable, and from these where tensors
lie; other ops follow. Which grid it is, is found by counting what all of them move (``planner.cost.grids``), which
where the closed form holds gives its grid, and holds of halos and uneven parts too.
"""

from __future__ import annotations

from collections import Counter
from math import prod

from planner.algebra.tiling import Shard
from planner.cost.contraction import contraction_of
from planner.cost.grids import Grid, grids, stepped_bytes
from planner.cost.tables import Candidates
from planner.errors import InfeasibleError
from planner.search.model.problem import Problem, Restriction, SearchVariable
from planner.tdl.bind import BoundOp


def processor_grids(problem: Problem, cuts: tuple[int, ...], room_bytes: int | None = None) -> Restriction:
    """Ops that sum products are cut as their best grids are; tensors and other ops as is best then.

    Args:
        problem: whose ops they are.
        cuts: the ways of each cut; grids are made of these.
        room_bytes: of each worker (M in the paper): grids on which an op takes more than that, in steps, are left out
            where there are others; None: enough.

    Raises:
        InfeasibleError: no op sums products of two inputs.
    """
    grid_of: dict[object, Grid | None] = {}
    by_op: dict[str, tuple[int, ...]] = {}
    for op in problem.ops:
        if contraction_of(op) is not None:
            if op.content not in grid_of:
                grid_of[op.content] = _best(op, cuts, room_bytes)
            grid = grid_of[op.content]
            if grid is not None:
                by_op[op.op.name] = grid.ways
    if not grid_of:
        raise InfeasibleError(
            f"--strategy distcnn: no op of {problem.graph.name} sums products of two inputs: there is no grid",
            hint="plan with --strategy tofu, which needs none",
        )

    def restrict(variable: SearchVariable, candidates: Candidates) -> Candidates:
        ways = None if variable.op is None else by_op.get(variable.op.op.name)
        if ways is None:
            return candidates
        matching = tuple(
            candidate
            for candidate in candidates
            if all(isinstance(placement, Shard) for placement in candidate.placements)
            and all(ways[dim] % used == 0 for dim, used in _used(candidate.dims, candidate.ways).items())
        )
        # Where no candidate fits the grid, this cut of the op is free.
        return matching or candidates

    return restrict


def _best(op: BoundOp, cuts: tuple[int, ...], room_bytes: int | None) -> Grid | None:
    """The grid that moves least of those that these cuts make and that fit; the leanest one if none fits."""

    def lacking(grid: Grid) -> int:
        return 0 if room_bytes is None else max(0, stepped_bytes(op, grid, prod(cuts)) - room_bytes)

    candidates = (grid for grid in grids(op, prod(cuts)) if _is_made_of(grid.ways, cuts))
    return min(candidates, key=lambda grid: (lacking(grid), grid.moved_bytes, grid.held_bytes, grid.ways), default=None)


def _used(dims: tuple[int, ...], ways: tuple[int, ...]) -> Counter[int]:
    """The product of the ways of each variable's cuts."""
    products: Counter[int] = Counter()
    for dim, count in zip(dims, ways, strict=True):
        products[dim] = max(1, products[dim]) * count
    return products


def _is_made_of(ways: tuple[int, ...], cuts: tuple[int, ...]) -> bool:
    """Whether the ways are products of cuts, each used once."""
    if not cuts:
        return all(count == 1 for count in ways)
    first, inner = cuts[0], cuts[1:]
    return any(
        _is_made_of((*ways[:place], count // first, *ways[place + 1 :]), inner)
        for place, count in enumerate(ways)
        if count % first == 0 and (place == 0 or count not in ways[:place])
    )
