"""The bound of all plans as a move, and what becomes of the plans that it comes upon."""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.algebra.tiling import Tiling
from planner.search.bound.certify import certify
from planner.search.effort import BoundLimits
from planner.search.model.found import Found
from planner.search.moves.fusion import improve
from planner.search.moves.move import Ground, Known

_WORTHWHILE = 1.5
"""Times the best plan's cost; an assignment that costs more is not worth improving."""


class Proposals:
    """The best plan known, while a bound proposes assignments (``planner.search.bound.certify.Incumbent``).

    Attributes:
        best: the plan.
    """

    def __init__(self, ground: Ground, best: Found) -> None:
        self._ground = ground
        self.best = best

    def look_at(self, composites: tuple[Tiling, ...]) -> bool:
        """Takes an assignment for the best plan, if it is a plan and costs less."""
        return self._ground.problem.are_local(composites) and self._take(composites)

    def improve(self, composites: tuple[Tiling, ...]) -> bool:
        """Takes what fusion makes of an assignment, if that is a plan, not far too dear, and costs less then."""
        problem = self._ground.problem
        cost = problem.cost(composites)
        if cost > _WORTHWHILE * self.best.cost or not problem.are_local(composites):
            return False
        start = replace(self.best, composites=composites, cost=cost)
        return self._take(improve(problem, self._ground.cuts, self._ground.free, start).composites)

    def _take(self, composites: tuple[Tiling, ...]) -> bool:
        cost = self._ground.problem.cost(composites)
        if cost >= self.best.cost:
            return False
        self.best = replace(self.best, composites=composites, cost=cost)
        return True


@dataclass(frozen=True, slots=True)
class Bound:
    """Bounds what a plan costs at least, and takes better plans that the bound's search comes upon."""

    limits: BoundLimits

    def __call__(self, ground: Ground, known: Known) -> Known:
        """The bound, where there is none yet, and where the best plan is not too dear to stand."""
        best = known.best
        if known.lower is not None or (ground.near is not None and best.cost > ground.near.most_cost):
            return known
        incumbent = Proposals(ground, best)
        lower = certify(ground.problem, ground.cuts, ground.free, incumbent, self.limits, ground.progress)
        return replace(known.with_best(incumbent.best), lower=lower)
