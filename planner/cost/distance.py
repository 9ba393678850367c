"""Distance of each product and convolution of a plan from its lower bound (``planner.cost.bounds``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import ClassVar

import numpy as np

from planner.algebra.tiling import Partial, Tiling
from planner.artifacts.plan import OpStrategy
from planner.cost.bounds import Bounds, Holding, Least
from planner.cost.by_op import op_bytes
from planner.cost.contraction import RESULT
from planner.cost.grids import Grid, best_grid
from planner.cost.tables import CostTables
from planner.graph.core.model import Graph, is_used
from planner.records import Positive
from planner.tdl.bind import BoundOp


@dataclass(frozen=True, slots=True)
class Distance:
    """The moved bytes of an op of a plan, beside the least."""

    told: ClassVar = (
        "op op_type moved_bytes least_as_it_lies_bytes=as_it_lies_bytes least_however_spread_bytes=any_bytes "
        "lies_once regime grid grid_bytes times_the_least=excess"
    )

    op: str
    op_type: str
    moved_bytes: int
    """Of the tensors that the op reads, and of its results until they lie in the tilings that the plan gives them."""
    any_bytes: int | None
    """The least however its tensors are spread, each element in one place, each worker having its share of the work;
    None where work is repeated."""
    regime: str
    """See ``Least.regime``; "" where there is no bound."""
    lies_once: bool
    """Whether the plan has each element of the op's tensors in one place: ``any_bytes`` bounds what it moves then."""
    as_it_lies_bytes: int | None
    """The least where its tensors lie as they do; None where work is repeated."""
    grid: Mapping[str, Positive]
    """The processor grid that moves least, by index variable."""
    grid_bytes: int | None
    """The bytes moved on that grid where the tensors lie best; None if no grid of the workers computes the op."""

    @property
    def excess(self) -> float | None:
        """The moved bytes as a multiple of the bound that holds of the plan; None if there is none, or it is 0."""
        return self.moved_bytes / self.least_bytes if self.least_bytes else None

    @property
    def least_bytes(self) -> int:
        """The larger of the bounds that hold of the plan; 0 where there is none."""
        return max(self.as_it_lies_bytes or 0, (self.any_bytes or 0) if self.lies_once else 0)


def distances(
    graph: Graph,
    ops: Iterable[BoundOp],
    strategies: Mapping[str, OpStrategy],
    tilings: Mapping[str, Tiling],
    tables: CostTables,
    *,
    with_grids: bool = True,
) -> Iterator[Distance]:
    """The distance of every op that sums products, in the order of the ops.

    Args:
        graph: that the ops are of.
        ops: some of its ops.
        strategies: the plan's, by op.
        tilings: the plan's, by tensor.
        tables: to count with.
        with_grids: look for the best processor grid of each, too, which takes most of the time.
    """
    grids: dict[tuple[object, int], Grid | None] = {}
    by_content: dict[tuple[object, ...], Distance | None] = {}
    for op in ops:
        strategy = strategies[op.op.name].tiling
        names = (*op.op.inputs, *op.op.outputs)
        lies = tuple((graph.tensors[name].dtype, tilings.get(name), is_used(graph, name)) for name in names if name)
        key = (op.op.op_type, op.content, strategy, lies)
        if key not in by_content:
            bounds = Bounds.of(op)
            if bounds is not None and with_grids and (op.content, strategy.workers) not in grids:
                grids[op.content, strategy.workers] = best_grid(op, strategy.workers)
            grid = grids.get((op.content, strategy.workers))
            moved = sum(amount for _, amount in op_bytes(graph, op, strategies, tilings, tables)) if bounds else 0
            by_content[key] = None if bounds is None else _distance(graph, op, bounds, strategy, tilings, moved, grid)
        distance = by_content[key]
        if distance is not None:
            yield replace(distance, op=op.op.name)


def times_the_least(rows: Iterable[Distance]) -> float | None:
    """The moved bytes of ops as a multiple of their bounds, taken together, of those with a bound that holds of the
    plan; None if none has one.

    It compares sums over ops with each other; no sum of bounds is one of an iteration.
    """
    bounded = [row for row in rows if row.as_it_lies_bytes is not None]
    least = sum(row.least_bytes for row in bounded)
    return sum(row.moved_bytes for row in bounded) / least if least else None


def _distance(
    graph: Graph,
    op: BoundOp,
    bounds: Bounds,
    strategy: Tiling,
    tilings: Mapping[str, Tiling],
    moved: int,
    grid: Grid | None,
) -> Distance:
    least: Least | None = bounds.any(strategy)
    holding, lies_once = _holding(graph, op, bounds, tilings, strategy.workers)
    lies = bounds.as_it_lies(strategy, holding)
    return Distance(
        op=op.op.name,
        op_type=op.op.op_type,
        moved_bytes=moved,
        any_bytes=None if least is None else ceil(least.any_bytes),
        regime="" if least is None else least.regime,
        lies_once=lies_once,
        as_it_lies_bytes=None if lies is None else ceil(lies),
        grid={} if grid is None else grid.named(op),
        grid_bytes=None if grid is None else grid.moved_bytes,
    )


def _holding(
    graph: Graph, op: BoundOp, bounds: Bounds, tilings: Mapping[str, Tiling], workers: int
) -> tuple[Holding, bool]:
    """Where an op's tensors lie, and whether each element is in one place."""
    input_elements: list[list[int]] = []
    once = True
    operands = bounds.contraction.operands
    for operand in operands[:RESULT]:
        name = op.op.inputs[operand.position]
        shape = graph.tensors[name].shape
        if name in graph.constants:  # every worker has it
            input_elements.append([graph.tensors[name].elements] * workers)
            once = False
        else:
            input_elements.append(_elements(tilings[name], shape))
            once = once and sum(input_elements[-1]) == graph.tensors[name].elements
    name = op.op.outputs[operands[RESULT].position]
    if not is_used(graph, name):
        return Holding((input_elements[0], input_elements[1]), 0, workers), False
    tiling, elements = tilings[name], graph.tensors[name].elements
    results = sum(_elements(tiling, graph.tensors[name].shape))
    pairs = zip(tiling.placements, tiling.ways, strict=True)
    partial = int(np.prod([ways for placement, ways in pairs if isinstance(placement, Partial)], initial=1))
    return Holding((input_elements[0], input_elements[1]), results, partial), once and results == elements


def _elements(tiling: Tiling, shape: tuple[int, ...]) -> list[int]:
    elements: list[int] = tiling.boxes(shape).elements.tolist()
    return elements
