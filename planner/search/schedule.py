"""What a search does, and in which order: lists of moves by effort.

Limits are in counted work, table entries and passes, and never in seconds: the same input gives the same plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from planner.search.effort import NORMAL_BOUND, THOROUGH_BOUND, BoundLimits, EffortName
from planner.search.moves.bounding import Bound
from planner.search.moves.grow import Fuse, Grow, once, once_but_last, until_stable
from planner.search.moves.move import Move
from planner.search.moves.starts import all_others, freely, of_transformers
from planner.search.moves.union import unite

MANY_OPS = 300
"""Ops; a graph of more is searched as a large one. Doubling it lets graphs of up to 600 ops be bounded twice."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The moves of one effort."""

    small: tuple[Move, ...]
    """For a graph of up to ``MANY_OPS`` ops."""
    large: tuple[Move, ...]
    """For any other."""
    shortens: bool = False
    """A large graph is planned by a short one, without most of its equal blocks (``planner.search.repeats``)."""

    def moves(self, ops: int) -> Sequence[Move]:
        """The moves for a graph of so many ops."""
        return self.large if ops > MANY_OPS else self.small


def _with_bound(limits: BoundLimits) -> Schedule:
    """Plans from all starts, improved until they are stable; a small graph is bounded before the other starts."""
    bound = Bound(limits)
    others = (Grow(all_others, until_stable), unite, Fuse(until_stable), bound)
    first = Grow(freely, until_stable)
    return Schedule(small=(first, bound, *others), large=(first, *others))


QUICK = Schedule(
    small=(Grow(freely, until_stable), Grow(all_others, until_stable, most_fused=3), unite, Fuse(until_stable)),
    large=(Grow(freely, once_but_last), Grow(of_transformers, once), unite),
    shortens=True,
)
"""A plan, and no bound."""
NORMAL = _with_bound(NORMAL_BOUND)
"""A plan, and a bound where that takes seconds."""
THOROUGH = _with_bound(THOROUGH_BOUND)
"""The same, and a bound where that takes minutes."""

SCHEDULES: Mapping[EffortName, Schedule] = MappingProxyType({"quick": QUICK, "normal": NORMAL, "thorough": THOROUGH})
