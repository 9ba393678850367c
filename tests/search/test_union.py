"""Plans put together from several."""

import numpy as np
import pytest

import opdefs
from planner import zoo
from planner.search.model.found import Found
from planner.search.model.problem import Problem, no_restriction
from planner.search.moves import restrictions as baselines
from planner.search.moves.recursion import search_recursively
from planner.search.moves.union import united

CUTS = (2, 2, 2)


def problem_of(name: str) -> Problem:
    graph = zoo.build(name)
    return Problem(graph, opdefs.standard().bind_all(graph), 8)


def starts(problem: Problem) -> list[Found]:
    restrictions = (baselines.data_parallel(problem), baselines.model_parallel(problem), baselines.first_dim(problem))
    return [search_recursively(problem, CUTS, restriction) for restriction in restrictions]


@pytest.mark.parametrize("name", ["alexnet", "lenet-5", "vgg-16", "rnn-1-1k"])
def test_the_best_of_several_plans_is_made_of_them(name: str) -> None:
    problem = problem_of(name)
    plans = starts(problem)
    found = united(problem, plans)
    assert problem.cost(found.composites) == found.cost < min(plan.cost for plan in plans)
    for variable, composite in enumerate(found.composites):
        assert composite in {plan.composites[variable] for plan in plans}


def test_one_plan_united_is_itself() -> None:
    problem = problem_of("lenet-5")
    found = search_recursively(problem, CUTS, no_restriction)
    assert united(problem, [found]) == found


def test_groups_of_equal_variables() -> None:
    problem = problem_of("rnn-1-1k")
    found = search_recursively(problem, CUTS, no_restriction)
    firsts, group = problem.alike(found.composites)
    for variable, number in enumerate(np.asarray(group).tolist()):
        first = firsts[number]
        assert problem.content[variable] == problem.content[first]
        assert found.composites[variable] == found.composites[first]
