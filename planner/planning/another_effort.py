"""Moves of another effort, or of more time, that a search left out."""

from __future__ import annotations

from planner.results import AnotherEffort
from planner.search.decision import Decision
from planner.search.effort import EFFORTS, BoundLimits, EffortName
from planner.search.moves.bounding import LowerBound
from planner.search.schedule import Schedule, schedule_of
from planner.stop import Stop


def another_effort(decided: Decision, effort: EffortName, stop: Stop, *, shares: bool) -> AnotherEffort | None:
    """The moves that another effort would try.

    The next effort begins as this one does. Of what it does then only the work is known, and not how soon it ends:
    where there is no bound yet, the bound and further plans are taken for as much work as all that was done; where
    there is one, its time grows as the number of its rounds.

    Args:
        decided: the plan.
        effort: with which it was found.
        stop: what ended the search early, if anything did.
        shares: readers may share deliveries.

    Returns:
        None of a strategy of the literature, which no effort changes.
    """
    if decided.strategy != "tofu":
        return None
    following = EFFORTS[EFFORTS.index(effort) + 1 :][:1]
    if decided.certified_gap == 0:
        more = "; more effort can only share transfers" if shares and decided.workers > 1 and following else ""
        return AnotherEffort(None, f"optimal{more}")
    if stop.left_out:
        return AnotherEffort(effort, f"with more time, {', '.join(stop.left_out)}")
    if not following:
        return AnotherEffort(None, "this is the largest effort")
    limits, further = _limits_of(schedule_of(effort)), _limits_of(schedule_of(following[0]))
    if limits is None or further is None:
        return AnotherEffort(following[0], "a lower bound and further starts", 2 * decided.search_seconds)
    if decided.lower is None:
        tries = "a lower bound by larger tables"
        return AnotherEffort(following[0], tries)
    about = decided.search_seconds + decided.bound_seconds * (further.rounds / limits.rounds - 1)
    return AnotherEffort(following[0], "more rounds", about)


def _limits_of(schedule: Schedule) -> BoundLimits | None:
    return next((move.limits for move in schedule.rest if isinstance(move, LowerBound)), None)
