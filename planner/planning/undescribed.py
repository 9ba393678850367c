"""The cost of ops without a description, which every worker executes whole."""

from __future__ import annotations

from collections.abc import Callable

from planner.artifacts.plan import UndescribedOp
from planner.cost.tables import CostTables
from planner.graph.core.model import Graph, qualified
from planner.search.decision import Decision
from planner.tdl.bind import BoundOp


def undescribed_ops(decided: Decision, is_unknown: Callable[[BoundOp], bool]) -> tuple[UndescribedOp, ...]:
    """The ops that have no description, in the graph's order.

    Args:
        decided: with the graph and its ops.
        is_unknown: tells ops without a description.
    """
    graph = decided.graph
    tables = CostTables()
    undescribed = []
    for op in decided.ops:
        if not is_unknown(op):
            continue
        strategy = (decided.strategies[op.op.name].tiling,)
        moved_bytes = 0
        for slot, first in op.delivered_slots.items():
            name = op.op.inputs[slot]
            if slot == first and name not in graph.constants:
                table = tables.input_bytes(op, slot, graph.tensors[name], (decided.tilings[name],), strategy)
                moved_bytes += int(table[0, 0])
        repeated = _work(op, graph) * (decided.workers - 1)
        undescribed.append(UndescribedOp(op.op.name, qualified(op.op.domain, op.op.op_type), moved_bytes, repeated))
    return tuple(undescribed)


def _work(op: BoundOp, graph: Graph) -> int:
    """The larger of an op's operations and the elements that it touches."""
    names = (*op.op.inputs, *op.op.outputs)
    return max(op.flop, sum(graph.tensors[name].elements for name in names if name))
