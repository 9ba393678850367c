"""Sizes of graphs up to which work is done that takes long: the one table of thresholds, each with its reason.

Above a threshold tables tell of a plan what its program would: the arrays that are held op by op its memory, tables of
time its seconds.
"""

from __future__ import annotations

import math
from enum import Enum

from planner.search.decision import Decision
from planner.search.effort import WHOLE_OPS


class Work(Enum):
    """Work, with the most ops of a graph, and the most parts (ops times workers), for which it is done."""

    TRIALS = WHOLE_OPS, math.inf
    """Programs of the plans that are tried, to tell what fits, and searches of the literature to compare with. Each
    takes seconds; above, one program is made, of the plan that is kept, and only closed forms are compared with.
    """
    ESTIMATES = WHOLE_OPS, 30_000
    """Programs of all strategies, to tell which is the fastest: above they take minutes."""
    COMPARISON = math.inf, 30_000
    """Programs of plans for each number of GPUs (``tofu fit``), and a summary's plan of data parallelism: minutes."""
    ANSWER = math.inf, 500_000
    """The program of the one plan that is the answer of ``tofu fit``: half a minute of the processor."""
    PROGRAM = math.inf, 4_000_000
    """The program of the plan that is kept, where its models are not wanted: minutes, and gigabytes."""
    OUTLOOK = math.inf, 2_000
    """Programs of plans that a summary compares with: above they take seconds."""
    SIMULATION = math.inf, 100_000
    """A simulation that nobody asks for: above it takes seconds."""
    SCHEMES = math.inf, 200_000
    """Plans of known schemes beside the plan of a report: above, data parallelism takes minutes."""

    def __init__(self, most_ops: float, most_parts: float) -> None:
        self.most_ops, self.most_parts = most_ops, most_parts

    def is_done(self, ops: int, workers: int = 1) -> bool:
        """Whether it is done for a graph of so many ops on so many workers."""
        return ops <= self.most_ops and ops * workers <= self.most_parts

    def is_done_for(self, plan: Decision) -> bool:
        """Whether it is done for a plan's graph."""
        return self.is_done(len(plan.ops), plan.workers)
