"""Plans kept to the budget of repeated work by a price on it."""

from dataclasses import replace

import pytest

import opdefs
from planner import zoo
from planner.cost.compute import REPLICATED_SHARE_LIMIT
from planner.search.budget import within_budget
from planner.search.improve import improve
from planner.search.pricing import Pricing
from planner.search.problem import Problem, no_restriction
from planner.search.recurse import Found, search_recursively
from planner.search.repetition import overdraws, repeated_by_choice
from planner.search.work_prices import FREE, Price, _PricedTables

CUTS = (2, 2, 2)


def overdrawn(name: str, times: int) -> tuple[Problem, Found]:
    """A plan found with a budget so many times the limit, which stands for one drawn up too generously."""
    graph = zoo.build(name)
    ops = opdefs.standard().bind_all(graph)
    problem = Problem(graph, ops, 8, replication_budget=times * REPLICATED_SHARE_LIMIT)
    found = improve(problem, CUTS, no_restriction, search_recursively(problem, CUTS, no_restriction))
    assert overdraws(problem, found.composites)
    return problem, found


@pytest.mark.parametrize(("name", "times"), [("cnn-5x2048-6", 100), ("lenet-5", 10)])
def test_a_price_keeps_a_plan_to_the_budget_and_costs_no_more_than_mending(name: str, times: int) -> None:
    problem, found = overdrawn(name, times)
    pricing = Pricing(problem, CUTS, no_restriction)
    pricing.note(found)
    assert pricing.price == FREE, "nothing is known that repeats less"
    assert pricing.best() is None
    pricing.search()
    priced = pricing.best()
    assert priced is not None
    assert not overdraws(problem, priced.composites)
    assert priced.moved_bytes == sum(amount for _, amount in problem.bytes_by_tensor(priced.composites))
    assert found.moved_bytes <= priced.moved_bytes
    assert priced.moved_bytes <= within_budget(problem, CUTS, no_restriction, found).moved_bytes
    assert pricing.price != FREE


def test_the_price_is_that_at_which_the_plans_known_cost_the_same() -> None:
    problem, found = overdrawn("lenet-5", 10)
    pricing = Pricing(problem, CUTS, no_restriction)
    pricing.note(found)
    pricing.note(within_budget(problem, CUTS, no_restriction, found))
    first, second = (
        (plan.moved_bytes, sum(repeated_by_choice(problem, plan.composites)))
        for plan in (found, within_budget(problem, CUTS, no_restriction, found))
    )
    price = pricing.price.bytes_per_work
    assert first[0] + price * first[1] == pytest.approx(second[0] + price * second[1])
    assert pricing.would_raise(pricing.price) == 0
    assert min(pricing.would_raise(Price(price * times)) for times in (0, 0.5, 2)) > 0


def test_a_plan_that_moves_no_more_than_those_that_overdraw_calls_for_no_price() -> None:
    problem, found = overdrawn("lenet-5", 10)
    pricing = Pricing(problem, CUTS, no_restriction)
    pricing.note(found)
    allowed = within_budget(problem, CUTS, no_restriction, found)
    pricing.note(replace(allowed, moved_bytes=found.moved_bytes))
    assert pricing.price == FREE


def test_the_price_of_a_plan_is_that_of_what_it_repeats() -> None:
    problem, found = overdrawn("cnn-5x2048-6", 100)
    price = 0.5
    priced = replace(problem, tables=_PricedTables(problem, price), variables=[], links=[])
    plain = sum(amount for _, amount in problem.bytes_by_tensor(found.composites))
    charged = sum(amount for _, amount in priced.bytes_by_tensor(found.composites))
    assert charged - plain == pytest.approx(
        price * sum(repeated_by_choice(problem, found.composites)), abs=len(problem.ops)
    )
    assert charged > plain
