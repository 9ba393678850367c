"""How much work an op is, and how much of it a plan does more than once."""

from __future__ import annotations

from collections.abc import Iterable

from planner.algebra.tiling import Tiling
from planner.graph.model import Graph
from planner.tdl.bind import BoundOp

REPLICATED_SHARE_LIMIT = 1e-4
"""Replicated work that a plan for the fewest bytes may add for its own choice, as a share of the graph's work."""


def work(bound: BoundOp, graph: Graph) -> int:
    """The larger of an op's operations and the elements that it touches."""
    names = (*bound.op.inputs, *bound.op.outputs)
    touched = sum(graph.tensors[name].elements for name in names if name)
    return max(bound.flop, touched)


def replicated_share(works: Iterable[tuple[int, BoundOp, Tiling]]) -> float:
    """Work done again by other workers, as a share of the graph's work.

    Args:
        works: the work of every op, the op, and its strategy.
    """
    total, extra = 0, 0.0
    for amount, bound, strategy in works:
        total += amount
        points = bound.ranges(strategy).elements.sum()
        whole = max(1, bound.whole_points)
        extra += amount * (float(points) / whole - 1)
    return extra / total if total else 0.0
