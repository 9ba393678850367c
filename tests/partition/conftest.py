"""Random plans of a graph, good or bad: what a table says must hold for all of them."""

from collections.abc import Callable

import pytest

import random_plans
from planner.search.decision import Decision
from planner.search.model.problem import Problem


@pytest.fixture
def random_plan() -> Callable[[Problem, int, int], Decision]:
    """Draws every variable's composite at random from its candidates, cut by cut."""
    return random_plans.random_plan
