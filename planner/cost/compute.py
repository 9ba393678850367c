"""How much work an op is, and how much of it a plan does more than once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from planner.algebra.tiling import Partial, Placement, Replicate, Tiling
from planner.graph.deliveries import is_delivery
from planner.graph.model import Graph
from planner.tdl.bind import BoundOp
from planner.tdl.linear import Linearity

REPLICATED_SHARE_LIMIT = 1e-4
"""Replicated work that a plan for the fewest bytes may add for its own choice, as a share of the graph's work."""


def work(bound: BoundOp, graph: Graph) -> int:
    """The larger of an op's operations and the elements that it touches; a shared delivery is none."""
    if is_delivery(bound.op):
        return 0
    names = (*bound.op.inputs, *bound.op.outputs)
    touched = sum(graph.tensors[name].elements for name in names if name)
    return max(bound.flop, touched)


def repeated_work(works: Iterable[tuple[int, BoundOp, Tiling]]) -> int:
    """Work that is done again by other workers.

    Args:
        works: the work of every op, the op, and its strategy.
    """
    known: dict[tuple[bool, Tiling], int] = {}
    total = 0
    for amount, bound, strategy in works:
        key = (bound.analysis.linearity is Linearity.ADDS, strategy)  # all that it depends on
        if key not in known:
            known[key] = _repetitions(bound, strategy)
        total += amount * known[key]
    return total


def replicated_share(works: Sequence[tuple[int, BoundOp, Tiling]]) -> float:
    """Work that is done again by other workers, as a share of all of it; arguments as for ``repeated_work``."""
    total = sum(amount for amount, _, _ in works)
    return repeated_work(works) / total if total else 0.0


def _repetitions(bound: BoundOp, strategy: Tiling) -> int:
    """How often all of an op's work is done again: 0 if none of it is."""
    cuts = zip(strategy.placements, strategy.ways, strict=True)
    return prod(ways for placement, ways in cuts if repeats(bound, placement)) - 1


def repeats(bound: BoundOp, placement: Placement) -> bool:
    """Whether the groups of a cut do an op's work again, and not parts of it.

    With ``P``, w groups each add what they have. That is not the same work again: to join n tensors of w contributions
    each and to add them takes n(w - 1) + n - 1 additions for each element, to add contributions and to join the sums
    (n - 1)w + w - 1, which is as many. An op that adds nothing (a Transpose) is done w times instead of once.
    """
    if isinstance(placement, Partial):
        return bound.analysis.linearity is not Linearity.ADDS
    return isinstance(placement, Replicate)
