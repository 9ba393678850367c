"""Plans grown from starts: recursion finds them, fusion improves them until they are stable."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from planner.errors import InfeasibleError
from planner.search.model.found import Found
from planner.search.moves.fusion import improve
from planner.search.moves.move import Ground, Known
from planner.search.moves.recursion import search_recursively
from planner.search.moves.starts import Starts


@dataclass(frozen=True, slots=True)
class Grow:
    """Adds a plan for each start."""

    starts: Starts

    def __call__(self, ground: Ground, known: Known) -> Known:
        """Finds the plans; a start under which the user's rules leave none adds none, but the first must."""
        found: list[Found] = []
        problem, cuts, progress = ground.problem, ground.cuts, ground.progress
        for start in self.starts(ground):
            with contextlib.suppress(InfeasibleError) if known.plans else contextlib.nullcontext():
                plan = search_recursively(problem, cuts, ground.narrow(start, cuts), progress)
                found.append(improve(problem, cuts, ground.free, plan, progress))
        is_exact = len(cuts) < 2 and not problem.decided_apart and not known.plans  # one cut is solved exactly
        return Known((*known.plans, *found), found[0].cost if is_exact else known.lower)
