"""Plans within a limit on memory, against every set of activations and every tiling."""

from __future__ import annotations

from itertools import product

import pytest

from all_sets import judged
from fast_suite import draws
from integer_programme import Programme, composites
from partial_plans import plan_of
from planner import opdefs
from planner.cost.residence import Residence
from planner.cost.tables import Candidates
from planner.features.zoo.models import mlp
from planner.search.model.problem import Problem, SearchVariable


@pytest.mark.slow
@pytest.mark.parametrize("kept", [slice(0, 2), slice(-2, None)])
def test_the_solver_finds_what_an_enumeration_of_all_plans_finds(kept: slice) -> None:
    """Of one layer, two values of each variable: 512 plans at each of several limits."""
    graph = mlp(1, 6, 8)
    ops = opdefs.standard().bind_all(graph)
    problem, residence = Problem(graph, ops, 2, with_partial_sums=True), Residence(graph, ops)

    def few(_: SearchVariable, candidates: Candidates) -> Candidates:
        return candidates[kept]

    choices = [composites(problem, variable, (2,), few) for variable in problem.variables]
    plans = [plan_of(problem, tilings) for tilings in product(*choices) if problem.is_possible(tilings)]
    found = [(int(residence.of(plan).max()), plan.cost) for plan in plans]
    programme = Programme(problem, (2,), few)
    programme.add_residence(residence)
    peaks = sorted({peak for peak, _ in found})
    assert programme.leanest() == peaks[0]
    for room in (peaks[0] - 1, *peaks[:: max(1, len(peaks) // 5)]):
        best = min((cost for peak, cost in found if peak <= room), default=None)
        solved = programme.least(room=room)
        assert (None if solved is None else solved[0]) == best


@pytest.mark.parametrize("count", draws(8, 200))
def test_plans_are_near_the_best_of_all_sets_and_never_below_their_bound(count: int) -> None:
    """Docs state how many of 500 are near; those beyond are listed there."""
    steps = [judged(number) for number in range(count)]
    met = [step for step in steps if step.is_met]
    assert len(met) > count // 2
    assert [str(step) for step in steps if step.is_below] == []
    far = [str(step) for step in met if not step.is_near]
    assert len(far) <= len(met) // 10, far
