"""Moves of another effort, or of more time, that a search left out."""

from __future__ import annotations

from planner.planning.request import PlanRequest
from planner.results import AnotherEffort
from planner.search.decision import Decision
from planner.search.effort import EFFORTS, EffortName
from planner.search.schedule import schedule_of


def another_effort(decided: Decision, request: PlanRequest) -> AnotherEffort | None:
    """The moves that another effort would try; how long they take depends on the bound, of which nothing is known.

    Args:
        decided: the plan.
        request: what was asked for.

    Returns:
        None of a strategy of the literature, which no effort changes.
    """
    effort, stop = request.effort, request.stop
    if not request.is_free:
        return None
    larger = EFFORTS[EFFORTS.index(effort) + 1 :]
    if decided.certified_gap == 0:
        more = "; more effort can only share transfers" if request.may_share and decided.workers > 1 and larger else ""
        return AnotherEffort(None, f"optimal{more}")
    if stop.left_out:
        return AnotherEffort(effort, f"with more time, {', '.join(stop.left_out)}")

    def searches(effort: EffortName) -> EffortName:
        """The effort of the search for what the plan is to have little of."""
        return schedule_of(effort).for_time if request.objective == "time" else effort

    following = next((name for name in larger if searches(name) != searches(effort)), None)
    if following is None:
        return AnotherEffort(None, "this is the largest effort")
    if not schedule_of(searches(effort)).rest:
        return AnotherEffort(following, "a lower bound and further starts")
    return AnotherEffort(following, "more rounds" if decided.certified_gap else "a lower bound by larger tables")
