"""The cost of each op of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from planner.algebra.tiling import Tiling
from planner.artifacts.plan import OpStrategy
from planner.cost.tables import CostTables, Request
from planner.graph.core.model import Graph, is_used
from planner.tdl.bind import BoundOp


def op_bytes(
    graph: Graph,
    op: BoundOp,
    strategies: Mapping[str, OpStrategy],
    tilings: Mapping[str, Tiling],
    tables: CostTables,
) -> Iterator[tuple[str, int]]:
    """The bytes that move so that an op can read its inputs and its outputs arrive, by tensor.

    Args:
        graph: that the op is of.
        op: the op.
        strategies: the plan's, by op.
        tilings: the plan's, by tensor.
        tables: to count with.

    Over all ops of a plan these are the bytes that it moves.
    """
    requests = list(requests_of(graph, op, strategies, tilings, tables))
    for request, table in zip(requests, tables.bytes_of(requests), strict=True):
        yield request.tensor.name, int(table[0, 0])


def requests_of(
    graph: Graph,
    op: BoundOp,
    strategies: Mapping[str, OpStrategy],
    tilings: Mapping[str, Tiling],
    tables: CostTables,
) -> Iterator[Request]:
    """The tables of an op's inputs and outputs, of one entry each; arguments as for ``op_bytes``."""
    strategy = tables.alone(strategies[op.op.name].tiling)
    for slot, first in op.delivered_slots.items():
        name = op.op.inputs[slot]
        if slot == first and name not in graph.constants:
            yield Request(op, True, slot, graph.tensors[name], tables.alone(tilings[name]), strategy)
    for position, name in enumerate(op.op.outputs):
        if name and is_used(graph, name):
            yield Request(op, False, position, graph.tensors[name], tables.alone(tilings[name]), strategy)


def recomputing(graph: Graph, ops: Iterable[BoundOp], tables: CostTables) -> int:
    """The cost of recomputed ops on one device: the step does it twice, however it is divided.

    Args:
        graph: that the ops are of.
        ops: of the graph.
        tables: to count with.
    """
    return sum(tables.computing(op) for op in ops if op.op.name in graph.copies) if graph.copies else 0


def op_cost(
    graph: Graph,
    op: BoundOp,
    strategies: Mapping[str, OpStrategy],
    tilings: Mapping[str, Tiling],
    tables: CostTables,
) -> int:
    """The bytes that move because of an op, and its charge; arguments as for ``op_bytes``."""
    moved = sum(amount for _, amount in op_bytes(graph, op, strategies, tilings, tables))
    return moved + op_charge(op, strategies[op.op.name].tiling, tables)


def op_charge(op: BoundOp, strategy: Tiling, tables: CostTables) -> int:
    """The cost of an op beside the bytes that move, with this strategy."""
    return int(tables.charges(op, tables.alone(strategy))[0])
