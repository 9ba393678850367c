"""Finding a plan that fits, with plans that are points and graphs that are small enough to try everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import chain, combinations

from hypothesis import given
from hypothesis import strategies as st

from planner.search.memory_limit import MOST_TRIALS, Measured, Part, components, fit, mixed

Point = tuple[int, int]
"""Objective and held bytes."""


def solver(points: Sequence[Point], limit: int, asked: list[Fraction]) -> Callable[[Fraction], Measured[Point]]:
    """The cheapest of some plans at a price; memory is what is held."""

    def plan_for(price: Fraction) -> Measured[Point]:
        asked.append(price)
        best = min(points, key=lambda point: (point[0] + price * point[1], point))
        return Measured(best, best[0], best[1], best[1] - limit)

    return plan_for


def corners(points: Sequence[Point]) -> set[Point]:
    """The lower hull: points that are cheapest at some price."""
    prices = [Fraction(0), Fraction(1024)]
    for one, other in combinations(points, 2):
        if one[1] != other[1]:
            prices.append(Fraction(other[0] - one[0], one[1] - other[1]))
    found = set()
    for price in (price for price in prices if 0 <= price <= 1024):
        for nearby in (price, price + Fraction(1, 10**9), max(Fraction(0), price - Fraction(1, 10**9))):
            found.add(min(points, key=lambda point: (point[0] + nearby * point[1], point)))
    return found


points = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), min_size=1, max_size=8)


@given(points, st.integers(0, 300))
def test_the_best_corner_that_fits_is_found(plans: list[Point], limit: int) -> None:
    asked: list[Fraction] = []
    plan_for = solver(plans, limit, asked)
    found = fit(plan_for(Fraction(0)), plan_for)
    assert len(asked) <= MOST_TRIALS
    fitting = [point for point in corners(plans) if point[1] <= limit]
    assert found.best.is_fitting == bool(fitting)
    if fitting:
        assert found.best.objective == min(objective for objective, _ in fitting)
    else:
        assert found.best.plan[1] == min(held for _, held in corners(plans))


def test_a_plan_that_fits_is_not_looked_for() -> None:
    asked: list[Fraction] = []
    found = fit(Measured((5, 10), 5, 10, 0), solver([], 0, asked))
    assert (found.best.plan, found.trials, asked) == ((5, 10), 0, [])


def test_the_judge_decides_and_not_the_proxy() -> None:
    # At the lowest price that the proxy asks for, the plan does not fit in truth: the search goes on.
    plans = {(0, 100): 50, (10, 60): 45, (30, 40): 20, (100, 0): 10}

    def plan_for(price: Fraction) -> Measured[Point]:
        best = min(plans, key=lambda point: point[0] + price * point[1])
        return Measured(best, best[0], best[1], plans[best] - 30)

    found = fit(plan_for(Fraction(0)), plan_for)
    assert found.best.plan == (30, 40)
    assert found.dearer is not None
    assert found.dearer.plan == (10, 60)


def test_a_plan_between_two_that_do_not_fit_is_found() -> None:
    plans = {(0, 100): 50, (10, 60): 20, (30, 40): 45, (100, 0): 40}

    def plan_for(price: Fraction) -> Measured[Point]:
        best = min(plans, key=lambda point: point[0] + price * point[1])
        return Measured(best, best[0], best[1], plans[best] - 30)

    assert fit(plan_for(Fraction(0)), plan_for).best.plan == (10, 60)


def test_of_plans_that_cost_the_same_the_one_that_holds_less() -> None:
    plans = [(5, 10), (5, 7), (9, 1)]
    asked: list[Fraction] = []
    found = fit(Measured((5, 10), 5, 10, 2), solver(plans, 8, asked))
    assert (found.best.plan, len(asked)) == ((5, 7), 1)


def test_components_are_what_hangs_together() -> None:
    links = [("a", "b"), ("b", "c"), ("d", "e"), ("e", "x"), ("x", "f")]
    found = components(["a", "b", "c", "d", "e", "f"], links)
    assert sorted(sorted(part) for part in found) == [["a", "b", "c"], ["d", "e"], ["f"]]
    assert components([], links) == ()


parts = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), min_size=1, max_size=7)


@given(parts, st.integers(0, 100))
def test_mixing_fits_and_costs_no_more_than_the_plan_that_fits(sizes: list[Point], spare: int) -> None:
    every = [Part((number,), moved, held) for number, (moved, held) in enumerate(sizes)]
    wanted = max(0, sum(part.held_bytes for part in every) - spare)

    def measure(chosen: Sequence[Part[int]]) -> Measured[tuple[int, ...]]:
        saved = sum(part.held_bytes for part in chosen)
        plan = tuple(sorted(number for part in chosen for number in part.variables))
        return Measured(plan, sum(part.objective for part in chosen), -saved, wanted - saved)

    found = mixed(every, measure)
    assert found.is_fitting
    subsets = chain.from_iterable(combinations(every, count) for count in range(len(every) + 1))
    best = min(plan.objective for plan in map(measure, subsets) if plan.is_fitting)
    dearest = max(part.objective for part in every)
    # Taken in the order of their price, the fewest that fit: at most the last one is too much.
    assert best <= found.objective <= best + dearest
