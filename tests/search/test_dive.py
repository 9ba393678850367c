"""Assignments that a bound leads to."""

import numpy as np
from hypothesis import given

from planner.search.bound.dive import dive
from planner.search.bound.dual import Dual
from random_sums import Sum, all_values, cost, sums

NEAR = 1e-6


class Shown(list[list[int]]):
    """What a dive shows."""

    def __init__(self, *, is_better: bool) -> None:
        super().__init__()
        self._is_better = is_better

    def look(self, values: list[int]) -> bool:
        self.append(values)
        return self._is_better


def passed_over(problem: Sum) -> Dual:
    dual = Dual(*problem)
    for _ in range(10):
        dual.forward()
        dual.backward()
    return dual


@given(sums(most_variables=6, below=10))
def test_what_is_shown_are_assignments_and_the_bound_still_holds(problem: Sum) -> None:
    dual = passed_over(problem)
    before = dual.lower
    shown = Shown(is_better=True)
    dive(dual, range(len(problem[0])), shown.look, 3)
    everything = all_values(problem)
    assert set(map(tuple, shown)) <= set(map(tuple, everything))
    assert before <= dual.lower <= min(cost(problem, values) for values in everything) + NEAR


def test_three_that_want_to_differ_are_settled() -> None:
    """Passes propose that all three are equal or waver; with one settled, an assignment of the least cost is seen."""
    alike = np.eye(2)
    problem = ([np.zeros(2)] * 3, [(0, 1, alike), (1, 2, alike), (0, 2, alike)])
    shown = Shown(is_better=True)
    dive(passed_over(problem), range(3), shown.look, 3)
    assert min(cost(problem, values) for values in shown) == 1.0


def test_a_dive_ends_early_where_it_leads_to_nothing_better() -> None:
    """Twelve that each want to differ from all others, which two values do not allow."""
    alike = np.eye(2)
    problem = ([np.zeros(2)] * 12, [(one, two, alike) for two in range(12) for one in range(two)])
    better, none = Shown(is_better=True), Shown(is_better=False)
    dive(passed_over(problem), range(12), better.look, 3)
    dive(passed_over(problem), range(12), none.look, 3)
    assert 0 < len(none) < len(better)


@given(sums(most_variables=6, below=10))
def test_what_is_missing_counts_between_two_variables_for_both(problem: Sum) -> None:
    dual = passed_over(problem)
    some = all_values(problem)[:20]
    assert some
    for values in some:
        missing = dual.missing(values)
        above = cost(problem, values) - dual.rest().constant
        assert missing.min() >= -NEAR
        assert above - NEAR <= missing.sum() <= 2 * above + NEAR
