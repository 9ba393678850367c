"""What a search does, and in which order: a list of moves for each effort.

Limits are in counted work, table entries and passes, and never in seconds: the same input gives the same plan. What
each move earns is in docs/benchmarks.md ("What each mechanism earns").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from planner.search.effort import NORMAL_BOUND, THOROUGH_BOUND, EffortName
from planner.search.moves.bounding import LowerBound
from planner.search.moves.grow import Grow
from planner.search.moves.move import Move
from planner.search.moves.starts import freely, likely, others


@dataclass(frozen=True, slots=True)
class Schedule:
    """What one effort does."""

    moves: tuple[Move, ...]
    """One after the other, until the best plan is proven best."""
    shortens: bool = False
    """A deep network is planned by a short one, without most of its equal blocks (``planner.search.repeats``)."""


QUICK = Schedule((Grow(freely), Grow(likely)), shortens=True)
"""A plan, and no bound but that of one cut."""
NORMAL = Schedule((Grow(freely), Grow(likely), LowerBound(NORMAL_BOUND), Grow(others)))
"""A plan, and a bound where that takes seconds; where that leaves a gap, plans from further starts."""
THOROUGH = Schedule((Grow(freely), Grow(likely), LowerBound(THOROUGH_BOUND), Grow(others)))
"""The same, and a bound where that takes minutes, too."""

SCHEDULES: Mapping[EffortName, Schedule] = MappingProxyType({"quick": QUICK, "normal": NORMAL, "thorough": THOROUGH})
