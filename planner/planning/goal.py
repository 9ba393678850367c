"""Goals of a plan: cost in bytes, or time on a machine (``planner.planning.objective``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from planner.cost.tables import CostTables
from planner.planning.limit.trial import Trial
from planner.search.effort import HIGHEST_PRICE


@dataclass(frozen=True, slots=True)
class Goal:
    """The quantity that a plan is to have little of."""

    tables: CostTables
    """Of that, for the search."""
    of: Callable[[Trial], int]
    """The objective of a plan: bytes or picoseconds."""
    highest_price: Fraction
    """The highest price of a byte of memory, in the objective's unit: more than a byte of memory could ever save."""


def least_cost(tables: CostTables) -> Goal:
    """The papers' goal (Tofu, section 5), what moves, and what uneven and repeated work is worth.

    Args:
        tables: of bytes.
    """
    return Goal(tables, lambda trial: trial.decided.cost, HIGHEST_PRICE)
