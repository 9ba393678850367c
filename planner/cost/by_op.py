"""What moves because of each op of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from planner.algebra.tiling import Tiling
from planner.cost.tables import CostTables
from planner.graph.model import Graph, is_used
from planner.plan import OpStrategy
from planner.tdl.bind import BoundOp


def op_bytes(
    graph: Graph,
    bound: BoundOp,
    strategies: Mapping[str, OpStrategy],
    tilings: Mapping[str, Tiling],
    tables: CostTables,
) -> Iterator[tuple[str, int]]:
    """What moves so that an op can read its inputs and its outputs arrive, by tensor.

    Args:
        graph: that the op is of.
        bound: the op.
        strategies: the plan's, by op.
        tilings: the plan's, by tensor.
        tables: to count with.

    Over all ops of a plan these are the bytes that it moves.
    """
    strategy = (strategies[bound.op.name].tiling,)
    for slot, first in bound.delivered_slots.items():
        name = bound.op.inputs[slot]
        if slot == first and name not in graph.constants:
            table = tables.input_bytes(bound, slot, graph.tensors[name], (tilings[name],), strategy)
            yield name, int(table[0, 0])
    for position, name in enumerate(bound.op.outputs):
        if name and is_used(graph, name):
            table = tables.output_bytes(bound, position, graph.tensors[name], (tilings[name],), strategy)
            yield name, int(table[0, 0])
