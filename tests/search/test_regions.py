"""A bound raised in regions against exhaustive enumeration of random sums of tables."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.search.bound.dual import Dual
from planner.search.bound.regions import narrowed_down, neighbours, raise_in_regions, regions
from planner.search.effort import NORMAL_BOUND
from planner.stop import Stop
from random_sums import Sum, all_values, cost, sums

NEAR = 1e-6


def passed(problem: Sum) -> Dual:
    dual = Dual(*problem)
    dual.forward()
    dual.backward()
    return dual


@given(sums(most_variables=6, below=10), st.integers(0, 3000))
def test_what_is_narrowed_down_is_the_least(problem: Sum, entries: int) -> None:
    """And no more than that where the work ends early."""
    least = min(cost(problem, values) for values in all_values(problem))
    dual = passed(problem)
    bound = dual.bound()
    assert abs(bound - dual.lower) < NEAR
    assert narrowed_down(passed(problem), 1e6, entries, Stop()) <= least - bound + NEAR
    assert abs(narrowed_down(passed(problem), 1e6, 10**9, Stop()) - (least - bound)) < NEAR


@given(sums(most_variables=6, below=10), st.data())
def test_a_part_rises_by_no_more_than_the_whole(problem: Sum, data: st.DataObject) -> None:
    least = min(cost(problem, values) for values in all_values(problem))
    dual = passed(problem)
    members = data.draw(st.sets(st.integers(0, len(problem[0]) - 1), min_size=1))
    assert dual.bound() + narrowed_down(dual.within(members), 1e6, 10**9, Stop()) <= least + NEAR


@given(sums(most_variables=6, below=10))
def test_a_raised_bound_is_one(problem: Sum) -> None:
    best = min(all_values(problem), key=lambda values: cost(problem, values))
    least = cost(problem, best)
    dual = passed(problem)
    before = dual.lower
    raise_in_regions(dual, best, least - before, NORMAL_BOUND, Stop())
    assert before - NEAR <= dual.lower <= least + NEAR


def test_no_region_is_over_a_variable_of_another_one() -> None:
    """Two loops that hang together by a chain, and a variable that hangs on one of them."""
    numbers = np.random.default_rng(0)
    loops = [(0, 1), (1, 2), (0, 2), (20, 21), (21, 22), (20, 22), (2, 23)]
    scopes = loops + [(one, one + 1) for one in range(2, 20)]
    pairs = [(first, second, numbers.integers(0, 30, (3, 3)).astype(float)) for first, second in scopes]
    near = neighbours(Dual([np.zeros(3) for _ in range(24)], pairs))
    above = np.zeros(24)
    above[[0, 21]] = 1
    assert regions(above, [0, 21], near) == [[0, 1, 2], [20, 21, 22]]
