"""Finding a plan that fits, with plans that are points and graphs that are small enough to try everything."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.search.effort import MOST_TRIALS
from planner.search.memory.limit import Measured, Planner, Prices, at_prices

Point = tuple[int, ...]
"""Objective, and residence by moment."""


def measured(point: Point, excess: int) -> Measured[Point]:
    return Measured(point, point[0], np.array(point[1:]), excess)


def planner(points: Sequence[Point], needs: Sequence[int], limit: int, asked: list[Prices]) -> Planner[Point]:
    """The cheapest of some plans at prices; what the program of each needs is given."""

    def plan_for(prices: Prices) -> Measured[Point]:
        asked.append(prices)

        def charged(point: Point) -> tuple[Fraction, Point]:
            return point[0] + sum((price * point[1 + at] for at, price in prices.items()), Fraction(0)), point

        best = min(points, key=charged)
        return measured(best, needs[points.index(best)] - limit)

    return plan_for


def corners(points: Sequence[Point]) -> set[Point]:
    """The lower hull of points of one moment: those that are cheapest at some price."""
    prices = [Fraction(0), Fraction(1024)]
    for one, other in combinations(points, 2):
        if one[1] != other[1]:
            prices.append(Fraction(other[0] - one[0], one[1] - other[1]))
    found = set()
    for price in (price for price in prices if 0 <= price <= 1024):
        for nearby in (price, price + Fraction(1, 10**9), max(Fraction(0), price - Fraction(1, 10**9))):
            found.add(min(points, key=lambda point: (point[0] + nearby * point[1], point)))
    return found


def best_of(tried: Sequence[Measured[Point]]) -> Measured[Point]:
    """The cheapest of those that fit."""
    return min((plan for plan in tried if plan.is_fitting), key=lambda plan: plan.objective)


points = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 300)), min_size=1, max_size=8, unique=True)


@given(points, st.integers(0, 300))
def test_the_best_corner_that_fits_is_found(plans: list[Point], limit: int) -> None:
    asked: list[Prices] = []
    plan_for = planner(plans, [held for _, held in plans], limit, asked)
    tried, _ = at_prices(plan_for({}), plan_for, 1)
    assert len(asked) - 1 == len(tried) - 1 <= MOST_TRIALS
    fitting = [point for point in corners(plans) if point[1] <= limit]
    assert any(plan.is_fitting for plan in tried) == bool(fitting)
    if fitting:
        best = best_of(tried)
        assert best.objective <= min(point[0] for point in fitting)
        assert all(not plan.is_fitting for plan in tried if plan.objective < best.objective)


def test_a_plan_that_fits_is_not_looked_for() -> None:
    asked: list[Prices] = []
    tried, prices = at_prices(measured((5, 10), 0), planner([], [], 0, asked), 1)
    assert ([plan.plan for plan in tried], prices, asked) == ([(5, 10)], {}, [])


def test_the_program_decides_and_not_residence() -> None:
    # At the aim that residence suggests, the plan does not fit in truth: the aim is lowered.
    plans, needs = [(0, 100), (10, 60), (30, 40), (100, 5)], [50, 45, 20, 10]
    plan_for = planner(plans, needs, 30, [])
    tried, _ = at_prices(plan_for({}), plan_for, 1)
    assert best_of(tried).plan == (30, 40)
    assert max(plan.objective for plan in tried if plan.objective < 30) == 10, "the next cheaper one was tried, too"


def test_a_plan_between_two_that_do_not_fit_is_found() -> None:
    plans, needs = [(0, 100), (10, 60), (30, 40), (100, 5)], [50, 20, 45, 40]
    plan_for = planner(plans, needs, 30, [])
    assert best_of(at_prices(plan_for({}), plan_for, 1)[0]).plan == (10, 60)


def test_of_plans_that_cost_the_same_the_one_that_takes_less() -> None:
    plans = [(5, 10), (5, 7), (9, 1)]
    asked: list[Prices] = []
    plan_for = planner(plans, [10, 7, 1], 8, asked)
    tried, _ = at_prices(measured((5, 10), 2), plan_for, 1)
    assert (best_of(tried).plan, len(asked)) == ((5, 7), 1)


def test_memory_has_a_price_at_every_moment_at_which_a_plan_is_fullest() -> None:
    # What saves at one moment makes the other fullest; only a price at both leads to the third plan.
    plans = [(0, 100, 100), (5, 40, 100), (6, 100, 40), (12, 50, 50), (90, 30, 30)]
    plan_for = planner(plans, [max(point[1:]) for point in plans], 60, [])
    tried, prices = at_prices(plan_for({}), plan_for, 1)
    assert best_of(tried).plan == (12, 50, 50)
    assert set(prices) == {0, 1}
