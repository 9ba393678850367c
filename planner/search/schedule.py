"""The schedule of a search: a list of moves for each effort.

Limits are in counted work, table entries and passes, and never in seconds: the same input gives the same plan. What
each move earns is in bench/results/ablation.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from planner.search.effort import LITTLE_SAVED, NORMAL_BOUND, THOROUGH_BOUND, EffortName
from planner.search.moves.bounding import LowerBound
from planner.search.moves.grow import Grow
from planner.search.moves.move import Move
from planner.search.moves.starts import freely, likely, others


@dataclass(frozen=True, slots=True)
class Schedule:
    """The moves of one effort."""

    rest: tuple[Move, ...]
    """The moves after those that make the first plan, one after the other until the best plan is proven best."""
    for_time: EffortName
    """The effort of searches by tables of time: their bounds take longer, and the plan's program is the judge."""
    least_saved_by_bodies: float = LITTLE_SAVED
    """Share of a plan's cost: a plan through bodies of composite ops that saves less is not bounded."""
    least_paid_again: float | None = None
    """Share of the moved bytes that must be brought to a tensor's readers more than once, so that a search with shared
    deliveries is worth it; None: there is no such search."""
    offers_all_copies: bool = False
    """Readers of every tensor of an unrolled network are offered shared deliveries."""
    offers_all: bool = False
    """Readers of every tensor of any network are offered shared deliveries."""
    bounds_what_is_shared: bool = False
    """A plan whose shared deliveries are others than those of a bound is bounded with its own."""


FIRST: tuple[Move, ...] = (Grow(freely), Grow(likely))
"""The moves that make the first plan, whatever the effort is."""
QUICK = Schedule((), for_time="quick")
"""A plan, and no bound but that of one cut."""
NORMAL = Schedule(
    (LowerBound(NORMAL_BOUND), Grow(others)),
    for_time="quick",
    least_paid_again=1 / 50,
    offers_all_copies=True,
)
"""A plan, and a bound where that takes seconds; where that leaves a gap, plans from further starts."""
THOROUGH = Schedule(
    (LowerBound(THOROUGH_BOUND), Grow(others)),
    for_time="normal",
    least_saved_by_bodies=0.0,
    least_paid_again=0.0,
    offers_all_copies=True,
    offers_all=True,
    bounds_what_is_shared=True,
)
"""The same, and a bound where that takes minutes, too."""

SCHEDULES: Mapping[EffortName, Schedule] = MappingProxyType({"quick": QUICK, "normal": NORMAL, "thorough": THOROUGH})


def schedule_of(effort: EffortName) -> Schedule:
    """The schedule of an effort."""
    return SCHEDULES[effort]
