"""The best plan within the budget of repeated work against an independent solver (HiGHS) of the same tables."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import opdefs
from integer_programme import composites, least_of_all
from planner import zoo
from planner.graph.model import Graph
from planner.search import work_cases
from planner.search.budget import within_budget
from planner.search.choices import Choices
from planner.search.decide import decide
from planner.search.effort import EFFORTS
from planner.search.improve import improve
from planner.search.problem import Problem, no_restriction
from planner.search.recurse import Found, search_recursively
from planner.search.repetition import overdraws
from planner.search.work_cases import least_within_budget
from planner.search.work_prices import FREE, Price
from random_graphs import graphs

DESCRIPTIONS = opdefs.standard()
CUTS = ((2, 2), (3, 2), (2, 2, 2))
MUCH = EFFORTS["thorough"]


def begun(graph: Graph, cuts: tuple[int, ...], budget: float) -> tuple[Problem, Choices, Found]:
    """A problem with a budget so many times its work, all candidates, and a plan within the budget."""
    ops = DESCRIPTIONS.bind_all(graph)
    problem = Problem(graph, ops, int(np.prod(cuts)), replication_budget=budget, any_may_repeat=True)
    problem.allowed_work = budget * sum(problem.works.values())
    start = improve(problem, cuts, no_restriction, search_recursively(problem, cuts, no_restriction))
    choices = Choices.of([problem.intern(composites(problem, variable, cuts)) for variable in problem.variables])
    return problem, choices, within_budget(problem, cuts, no_restriction, start)


def check(graph: Graph, cuts: tuple[int, ...], budget: float, price: Price) -> None:
    problem, choices, start = begun(graph, cuts, budget)
    assume(not overdraws(problem, start.composites))
    found = least_within_budget(problem, choices, start, price, MUCH)
    assert not overdraws(problem, found.composites)
    assert problem.total_bytes(found.composites) == found.moved_bytes == found.lower_bytes
    assert found.moved_bytes == least_of_all(problem, cuts, within_budget=True)


BUDGETS = st.sampled_from([0.02, 0.1, 0.2, 0.4, 0.8])
PRICES = st.sampled_from([FREE, Price(1e-3), Price(0.1), Price(3.0)])


@settings(max_examples=25)
@given(graphs(), st.sampled_from(CUTS[:2]), BUDGETS, PRICES)
def test_the_best_plan_within_the_budget_is_found(
    graph: Graph, cuts: tuple[int, ...], budget: float, price: Price
) -> None:
    check(graph, cuts, budget, price)


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(graphs(), st.sampled_from(CUTS), BUDGETS, PRICES)
def test_the_best_of_many_plans_within_the_budget_is_found(
    graph: Graph, cuts: tuple[int, ...], budget: float, price: Price
) -> None:
    check(graph, cuts, budget, price)


@settings(max_examples=15)
@given(graphs(), BUDGETS, st.integers(1, 4))
def test_a_bound_holds_whenever_cases_end(graph: Graph, budget: float, most: int) -> None:
    cuts = (2, 2)
    problem, choices, start = begun(graph, cuts, budget)
    assume(not overdraws(problem, start.composites))
    some = replace(MUCH, budget_entries=most * work_cases._FACTOR * len(problem.scopes))
    found = least_within_budget(problem, choices, start, FREE, some)
    assert found.lower_bytes is not None
    assert found.lower_bytes <= least_of_all(problem, cuts, within_budget=True) <= found.moved_bytes


def test_solutions_that_are_too_large_leave_the_plan_as_it_is() -> None:
    problem, choices, start = begun(zoo.mlp(2, 12, 16), (2, 2), 0.1)
    assert least_within_budget(problem, choices, start, FREE, replace(MUCH, exact_entries=0)) is start


@pytest.mark.parametrize("name", ["lenet-5"])
def test_a_plan_is_proven_the_best_within_the_budget(name: str) -> None:
    graph = zoo.build(name)
    plan = decide(graph, DESCRIPTIONS.bind_all(graph), 8).plan
    assert plan.certified_gap == 0.0
    assert 0 < plan.replicated_flop_share <= 1e-4
