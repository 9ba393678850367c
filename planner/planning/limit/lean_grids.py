"""Processor grids for the memory there is: 3D, 2.5D or 2D (SPAA'21, section 2.2), for contractions that run in steps.

In steps a worker has its tiles of an op's tensors, of what circulates a chunk, and what it makes of the result. The
fewer ways an op's sums are cut, the less of that a worker makes, and the more moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

from planner.algebra.tiling import Shard, Tiling
from planner.cost.contraction import RESULT, TENSORS, contraction_of
from planner.cost.grids import Grid, grids
from planner.graph.model import Shape
from planner.planning.limit.in_steps import step_variables
from planner.tdl.bind import BoundOp

_SHARES = (1.0, 0.5, 0.25)
"""Of the memory there is, what an op's tensors may take, one after the other."""


def lean_grids(ops: Iterable[BoundOp], cuts: tuple[int, ...], memory_bytes: int) -> Iterator[dict[str, Tiling]]:
    """By op that can run in steps, the strategy of the grid that moves least of those that fit, or else of the leanest.

    Args:
        ops: of a graph.
        cuts: ways of each cut, of which grids are made.
        memory_bytes: what a worker has.

    Yields:
        Different choices, for ever less memory.
    """
    found: list[tuple[str, list[tuple[int, Grid, Tiling]]]] = []
    known: dict[object, list[tuple[int, Grid, Tiling]]] = {}
    for op in ops:
        if step_variables(op):
            if op.content not in known:
                known[op.content] = list(_made_of(op, cuts))
            if known[op.content]:
                found.append((op.op.name, known[op.content]))
    tried: list[dict[str, Tiling]] = []
    for share in _SHARES if found else ():
        chosen = {name: _best(options, int(share * memory_bytes)) for name, options in found}
        if chosen not in tried:
            tried.append(chosen)
            yield chosen


def _best(options: list[tuple[int, Grid, Tiling]], memory_bytes: int) -> Tiling:
    fitting = [one for one in options if one[0] <= memory_bytes]
    if fitting:
        return min(fitting, key=lambda one: (one[1].moved_bytes, one[0], one[1].ways))[2]
    return min(options, key=lambda one: (one[0], one[1].moved_bytes, one[1].ways))[2]


def _made_of(op: BoundOp, cuts: tuple[int, ...]) -> Iterator[tuple[int, Grid, Tiling]]:
    """The grids that the cuts make, with what a worker has in many steps, and a strategy of each."""
    contraction = contraction_of(op)
    assert contraction is not None, "an op that can run in steps sums products"
    shapes: list[Shape | None] = [op.node.input_shapes[one.position] for one in contraction.operands[:RESULT]]
    shapes.append(op.node.output_shapes[contraction.operands[RESULT].position])
    sizes = [contraction.operands[tensor].item_bytes * prod(shapes[tensor] or ()) for tensor in range(TENSORS)]
    for grid in grids(op, prod(cuts)):
        dims = _dims(grid.ways, cuts)
        if dims is not None:
            strategy = Tiling(tuple(map(Shard, dims)), cuts)
            made = int(op.makes(op.ranges(strategy), 0).elements.max()) * contraction.operands[RESULT].item_bytes
            if op.is_local(strategy):
                yield sum(sizes) // prod(cuts) + made, grid, strategy


def _dims(ways: tuple[int, ...], cuts: tuple[int, ...]) -> list[int] | None:
    """Along which variable each cut goes so that the ways come out; the first cuts go along the first variables."""
    if not cuts:
        return [] if all(one == 1 for one in ways) else None
    for place, one in enumerate(ways):
        if one > 1 and one % cuts[0] == 0:
            rest = _dims((*ways[:place], one // cuts[0], *ways[place + 1 :]), cuts[1:])
            if rest is not None:
                return [place, *rest]
    return None
