"""Decisions as values: with other tilings, from and to the values of a problem's variables, and with a bound."""

from __future__ import annotations

from dataclasses import replace

import pytest

from partial_plans import partial_plan
from planner import opdefs
from planner.cost.tables import CostTables
from planner.features.zoo.models import mlp
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.model.problem import Problem
from planner.search.request import SearchRequest

GRAPH = mlp(2, 24, 36)
OPS = opdefs.standard().bind_all(GRAPH)
WORKERS = 4


def decided() -> Decision:
    return decide(GRAPH, OPS, SearchRequest(WORKERS, effort="quick"))


@pytest.mark.parametrize("seed", range(4))
def test_a_plan_with_values_has_them_and_costs_what_the_tables_say(seed: int) -> None:
    problem = Problem(GRAPH, OPS, WORKERS, with_partial_sums=True, with_nests=True)
    drawn, plan = partial_plan(problem, WORKERS, seed), decided()
    values = problem.values_of(drawn)
    changed = plan.with_values(problem, values)
    assert problem.values_of(changed) == values != problem.values_of(plan)
    assert changed.cost == problem.cost(values) == changed.moved_bytes + changed.excess_bytes
    assert (changed.tilings, changed.strategies) == (drawn.tilings, drawn.strategies)
    assert changed.with_values(problem, problem.values_of(plan)) == replace(plan, lower=None)


def test_a_bound_is_of_plans_that_cost_no_less() -> None:
    plan = decided()
    cost = plan.cost
    assert cost > 1
    assert [plan.with_bound(lower).certified_gap for lower in (0, cost, cost + 1)] == [None, 0, None]
    bounded = plan.with_bound(cost // 2)
    assert bounded.certified_gap == pytest.approx(1, abs=2 / cost)
    assert bounded.with_bound(None) is bounded
    assert bounded.with_costs(CostTables(plan.rates)).certified_gap is None, "other tables may count less"


def test_a_bound_of_time_is_a_share_of_time() -> None:
    plan = replace(decided(), lower=100, picoseconds=125)
    assert (plan.certified_gap, plan.gap_of) == (0.25, "time")
