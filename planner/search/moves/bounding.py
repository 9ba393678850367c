"""The bound of all plans as a move, and what becomes of the plans that it comes upon."""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.algebra.tiling import Tiling
from planner.search.bound.certify import BOUND, certify
from planner.search.effort import BoundLimits
from planner.search.model.found import Found
from planner.search.model.problem import Problem
from planner.search.moves.fusion import improve, joined
from planner.search.moves.move import Ground, Known
from planner.spent import part
from planner.stop import Stop


class Proposals:
    """The best plan known, while a bound proposes assignments (``planner.search.bound.certify.Incumbent``).

    Attributes:
        best: the plan.
    """

    def __init__(self, problem: Problem, best: Found, stop: Stop | None = None) -> None:
        self._problem = problem
        self._stop = stop
        self.best = best

    def look_at(self, tilings: tuple[Tiling, ...]) -> None:
        """Takes an assignment for the best plan, if it is a plan and costs less."""
        cost = self._problem.cost(tilings)
        if cost < self.best.cost and self._problem.are_local(tilings):
            self.best = replace(self.best, tilings=tilings, cost=cost)

    def join(self, tilings: tuple[Tiling, ...]) -> None:
        """Takes of an assignment what makes the best plan better: each variable is what it is in one of both."""
        self.best = joined(self._problem, self.best, tilings, self._stop)


@dataclass(frozen=True, slots=True)
class LowerBound:
    """Bounds the cost of all plans, and improves better plans that the bound's search comes upon."""

    limits: BoundLimits

    def __call__(self, ground: Ground, outcome: Known) -> Known:
        """The bound, where the best plan is not too dear to stand."""
        best = outcome.best
        if ground.to_beat is not None and best.cost > ground.to_beat.most_cost:
            return outcome
        if ground.stop.leaves_out(BOUND):
            return outcome
        incumbent = Proposals(ground.problem, best, ground.stop)
        with part("bound"):
            lower = certify(
                ground.problem, ground.cuts, ground.free, incumbent, self.limits, ground.progress, ground.stop
            )
        plan = incumbent.best
        if plan is not best and plan.cost != lower:
            plan = improve(ground.problem, ground.cuts, ground.free, plan, ground.progress, ground.stop)
        return replace(outcome.with_best(plan), lower=lower)
