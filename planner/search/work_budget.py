"""How much work a graph is, how much of it a plan may repeat, and which ops may be repeated at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.cost.compute import REPLICATED_SHARE_LIMIT, work
from planner.graph.model import Graph
from planner.tdl.bind import BoundOp, Content


@dataclass(frozen=True, slots=True)
class WorkBudget:
    """The work of a graph, and what may be repeated of it."""

    works: Mapping[str, int]
    """By op, how much work it is."""
    allowed: float
    """That a plan may repeat by choice."""
    smallest: frozenset[str]
    """The ops of the least work, as many as the budget holds if all are repeated."""
    alone: frozenset[str]
    """The ops that the budget holds alone."""
    negligible: float
    """So little work of an op is repeated at no charge where it cannot be split."""

    @classmethod
    def of(
        cls,
        graph: Graph,
        ops: Sequence[BoundOp],
        workers: int,
        share: float = REPLICATED_SHARE_LIMIT,
        stands_for: Mapping[str, int] | None = None,
    ) -> WorkBudget:
        """The budget of a graph.

        Args:
            graph: the training graph.
            ops: its ops with their descriptions.
            workers: how many.
            share: of the graph's work, by which it is settled which ops may be repeated.
            stands_for: by op, of how many ops the work is counted; 1 for those that are not there.
        """
        known: dict[Content, int] = {}
        for bound in ops:
            if bound.content not in known:
                known[bound.content] = work(bound, graph)
        works = {bound.op.name: known[bound.content] for bound in ops}
        times = stands_for or {}
        counts: Counter[int] = Counter()
        for name, amount in works.items():
            counts[amount] += times.get(name, 1)
        total = sum(amount * count for amount, count in counts.items())
        allowed, budget = REPLICATED_SHARE_LIMIT * total, share * total
        largest = _largest_of_the_smallest(counts, budget)
        return cls(
            works,
            allowed,
            frozenset(name for name, amount in works.items() if amount <= largest),
            frozenset(name for name, amount in works.items() if amount <= budget),
            allowed / max(1, counts.total()) / max(1, workers - 1),
        )


def _largest_of_the_smallest(counts: Mapping[int, int], left: float) -> int:
    """The most work of the ops of the least work, as many as a budget holds if all are repeated; -1: it holds none.

    Of ops of equal work all are among them, or none, so that neither names nor order decide. What a repetition adds
    depends on how many workers repeat; two is assumed here, and the plan's true share is checked afterwards.
    """
    largest = -1
    for amount in sorted(counts):
        left -= amount * counts[amount]
        if left < 0:
            break
        largest = amount
    return largest
