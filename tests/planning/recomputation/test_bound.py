"""The bound of plans with any set of activations computed again."""

from __future__ import annotations

import pytest

from all_sets import drawn
from planner import opdefs
from planner.cost.tables import CostTables
from planner.features.zoo.models.transformer import GptShape, gpt
from planner.graph.core.model import Graph
from planner.graph.rewriting.canonical import canonical
from planner.graph.rewriting.recomputation import recomputed
from planner.planning.bodies import decide_with_bodies
from planner.planning.goal import least_cost
from planner.planning.limit.least_memory import EveryPlan
from planner.planning.recomputation.bound import bound_of_all_sets
from planner.planning.recomputation.offers import Offers
from planner.search.request import SearchRequest

DESCRIPTIONS = opdefs.standard()


def offered(form: Graph, workers: int) -> tuple[Offers, SearchRequest]:
    tables = CostTables()
    ask = SearchRequest(workers, tables=tables)
    plain = decide_with_bodies(form, DESCRIPTIONS, ask)
    return Offers(form, DESCRIPTIONS, tables, plain, least_cost(tables)), ask


def check(form: Graph, workers: int, every: int) -> None:
    """The bound at several limits: no plan with a set that can fit costs less, and less room asks for more work."""
    offers, ask = offered(form, workers)
    least = {number: offers.least(number) for number in range(0, len(offers.sets), every)}
    costs = {
        number: decide_with_bodies(recomputed(form, offers.sets[number]), DESCRIPTIONS, ask).cost for number in least
    }
    before = None
    for room in sorted(set(least.values()), reverse=True):
        bound = bound_of_all_sets(offers, room, ask)
        assert bound is not None
        assert bound <= min(cost for number, cost in costs.items() if least[number] <= room)
        assert before is None or bound >= before
        before = bound


@pytest.mark.parametrize(
    "number", [0, 1, pytest.param(3, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.slow)]
)
def test_no_plan_with_a_set_that_can_fit_costs_less(number: int) -> None:
    check(drawn(number), 2, 1)


@pytest.mark.slow
def test_no_plan_of_a_transformer_costs_less() -> None:
    check(canonical(gpt("g", GptShape(2, 16, 2, 64), batch=8)).graph, 4, 9)


@pytest.mark.slow
def test_where_no_set_is_small_enough_the_bound_has_its_work() -> None:
    form = canonical(gpt("g", GptShape(2, 16, 2, 64), batch=8)).graph
    offers, ask = offered(form, 2)
    free, tight = (bound_of_all_sets(offers, room, ask) for room in (10 * offers.least(0), offers.least(0) * 7 // 10))
    assert free is not None
    assert tight is not None
    assert free <= offers.plan.cost
    assert tight > free
    first = next(number for number, _ in enumerate(offers.sets) if offers.least(number) <= offers.least(0) * 7 // 10)
    assert tight - free <= offers.work_of(offers.sets[first])
    every = EveryPlan(form, DESCRIPTIONS)
    again = every.whatever_is_again(offers.sets[-1])
    assert again.at_moments(2).max() < every.at_moments(2).max()


def test_with_little_effort_there_is_none() -> None:
    form = drawn(0)
    offers, _ = offered(form, 2)
    assert bound_of_all_sets(offers, offers.least(0), SearchRequest(2, tables=offers.tables, effort="quick")) is None
