"""What it costs that ops without a description are executed whole by every worker."""

from __future__ import annotations

from collections.abc import Callable

from planner.artifacts.plan import UndescribedOp
from planner.cost.tables import CostTables
from planner.graph.model import Graph
from planner.graph.reading.undescribed import qualified
from planner.search.decided import Decided
from planner.tdl.bind import BoundOp


def undescribed_ops(decided: Decided, is_unknown: Callable[[BoundOp], bool]) -> tuple[UndescribedOp, ...]:
    """The ops that have no description, in the graph's order.

    Args:
        decided: with the graph and its ops.
        is_unknown: tells ops without a description.
    """
    graph = decided.graph
    tables = CostTables()
    found = []
    for bound in decided.ops:
        if not is_unknown(bound):
            continue
        strategy = (decided.strategies[bound.op.name].tiling,)
        moved_bytes = 0
        for slot, first in bound.delivered_slots.items():
            name = bound.op.inputs[slot]
            if slot == first and name not in graph.constants:
                table = tables.input_bytes(bound, slot, graph.tensors[name], (decided.tilings[name],), strategy)
                moved_bytes += int(table[0, 0])
        repeated = _work(bound, graph) * (decided.workers - 1)
        found.append(UndescribedOp(bound.op.name, qualified(bound.op.domain, bound.op.op_type), moved_bytes, repeated))
    return tuple(found)


def _work(bound: BoundOp, graph: Graph) -> int:
    """The larger of an op's operations and the elements that it touches."""
    names = (*bound.op.inputs, *bound.op.outputs)
    return max(bound.flop, sum(graph.tensors[name].elements for name in names if name))
