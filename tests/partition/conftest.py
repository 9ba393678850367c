"""Random plans of a graph, good or bad: what a table says must hold for all of them."""

from collections.abc import Callable

import numpy as np
import pytest

from partial_plans import plan_of
from planner.algebra.tiling import Tiling
from planner.plan import Plan
from planner.search.factors import prime_factors
from planner.search.problem import Problem


@pytest.fixture
def random_plan() -> Callable[[Problem, int, int], Plan]:
    """Draws every variable's composite at random from its candidates, cut by cut."""

    def draw(problem: Problem, workers: int, seed: int) -> Plan:
        rng = np.random.default_rng(seed)
        composites = [Tiling((), ()) for _ in problem.variables]
        for ways in prime_factors(workers):
            for variable in problem.variables:
                options = problem.extensions(variable, composites[variable.number], ways)
                composites[variable.number] = options[rng.integers(len(options))]
        return plan_of(problem, composites)

    return draw
