"""Mixtures of two plans along a network of equal layers."""

import pytest

import opdefs
from planner.search.improve import improve
from planner.search.mixing import mixed
from planner.search.problem import Problem, no_restriction
from planner.search.recurse import Found, search_recursively
from planner.search.repetition import overdraws, repeated_by_choice
from planner.zoo import mlp

CUTS = (2, 2)


def plans(layers: int) -> tuple[Problem, Found, Found]:
    """The best plan of a deep network if all may be repeated, and if nothing may."""
    graph = mlp(layers, 32, 64)
    ops = opdefs.standard().bind_all(graph)
    found = []
    for budget in (1.0, 0.0):
        problem = Problem(graph, ops, 4, replication_budget=budget, any_may_repeat=True)
        found.append(improve(problem, CUTS, no_restriction, search_recursively(problem, CUTS, no_restriction)))
    problem = Problem(graph, ops, 4, replication_budget=1.0, any_may_repeat=True)
    return problem, found[0], found[1]


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_mixture_repeats_what_it_may_and_saves_bytes_by_it(share: float) -> None:
    problem, over, under = plans(60)
    works = [sum(repeated_by_choice(problem, plan.composites)) for plan in (over, under)]
    assert over.moved_bytes < under.moved_bytes
    assert works[0] > works[1] == 0
    problem.allowed_work = share * works[0]
    best = mixed(problem, over, under)
    assert not overdraws(problem, best.composites)
    assert best.moved_bytes == problem.total_bytes(best.composites)
    # Layers are alike, so a part of them saves about as large a part.
    saved = (under.moved_bytes - best.moved_bytes) / (under.moved_bytes - over.moved_bytes)
    assert share - 0.15 < saved <= share + 0.05


def test_plans_that_are_the_same_have_no_mixture() -> None:
    problem, over, _ = plans(3)
    problem.allowed_work = float("inf")
    assert mixed(problem, over, over) is over
