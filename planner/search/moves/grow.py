"""Plans grown from starts: recursion finds them, fusion improves them until they are stable."""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.errors import InfeasibleError
from planner.progress import in_part
from planner.search.effort import HOPELESS_START
from planner.search.model.found import Found
from planner.search.moves.fusion import improve
from planner.search.moves.move import Ground, Known
from planner.search.moves.recursion import search_recursively
from planner.search.moves.starts import Starts, freely
from planner.stop import StoppedError

FURTHER_PLANS = "plans from further starts"
"""The work that is left out where a search ends before its last start."""


@dataclass(frozen=True, slots=True)
class Grow:
    """Adds a plan for each start; in an entangled graph none for those that begin far above the best."""

    starts: Starts
    improves: bool = True
    """False: the plan is one that is stable."""

    def __call__(self, ground: Ground, outcome: Known) -> Known:
        """Finds the plans; a start under which the user's rules leave none adds none, but the first must."""
        plans: list[Found] = []
        problem, cuts, stop = ground.problem, ground.cuts, ground.stop
        starts = self.starts(ground)
        for number, start in enumerate(starts, start=1):
            if outcome.plans and stop.leaves_out(FURTHER_PLANS):
                break
            log = in_part(ground.progress, f"start {number} of {len(starts)}") if len(starts) > 1 else ground.progress
            try:
                plan = search_recursively(problem, cuts, ground.narrow(start, cuts), log, stop)
                if outcome.plans and problem.decided_apart and plan.cost > HOPELESS_START * outcome.best.cost:
                    continue
                plans.append(improve(problem, cuts, ground.free, plan, log, stop) if self.improves else plan)
            except (InfeasibleError, StoppedError) as error:
                if not outcome.plans:
                    raise
                if isinstance(error, StoppedError):
                    stop.leaves_out(FURTHER_PLANS)
        # One cut is solved exactly, where nothing is restricted.
        is_exact = self.starts is freely and len(cuts) < 2 and not problem.decided_apart and not outcome.plans
        return replace(outcome, plans=(*outcome.plans, *plans), lower=plans[0].cost if is_exact else outcome.lower)
