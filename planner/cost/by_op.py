"""The cost of each op of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from planner.algebra.tiling import Tiling
from planner.artifacts.plan import Decision, OpStrategy
from planner.cost.tables import CostTables, Request
from planner.graph.core.model import Graph, is_used
from planner.tdl.bind import BoundOp

D = TypeVar("D", bound=Decision)


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
    requests = list(_requests(graph, op, strategies, tilings, tables))
    for request, table in zip(requests, tables.bytes_of(requests), strict=True):
        yield request.tensor.name, int(table[0, 0])


def _requests(
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


def costed(graph: Graph, ops: Iterable[BoundOp], plan: D, tables: CostTables) -> D:
    """A plan with what it costs by some tables: bytes by tensor, and the excess of its ops.

    Args:
        graph: that the plan is of.
        ops: of the graph.
        plan: its tilings and strategies count.
        tables: to count with.
    """
    moved = dict.fromkeys(plan.tilings, 0)
    excess = repeated = computing = 0
    ops = tuple(ops)
    requests = [request for op in ops for request in _requests(graph, op, plan.strategies, plan.tilings, tables)]
    for request, table in zip(requests, tables.bytes_of(requests), strict=True):
        moved[request.tensor.name] += int(table[0, 0])
    again = recomputing(graph, ops, tables)
    for op in ops:
        computing += tables.computing(op)
        strategy = plan.strategies[op.op.name].tiling
        if charge := op_charge(op, strategy, tables):
            excess += charge
            repeated += tables.repeated(op, strategy)
    return replace(
        plan,
        tensor_bytes=moved,
        moved_bytes=sum(moved.values()),
        computing_bytes=computing - again,
        excess_bytes=excess + again,
        repeated_bytes=repeated + again,
    )


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
