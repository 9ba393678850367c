"""Bounds begun on merged values against exhaustive enumeration of random sums of tables."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.search.bound.coarse import begin_coarsely
from planner.search.bound.dual import Dual
from random_sums import Sum, all_values, cost, sums

NEAR = 1e-6


@given(sums(most_variables=6, below=10), st.data())
def test_a_bound_of_merged_values_is_one_of_the_sum(problem: Sum, data: st.DataObject) -> None:
    groups = [
        np.unique(data.draw(st.lists(st.integers(0, 2), min_size=len(own), max_size=len(own))), return_inverse=True)[1]
        for own in problem[0]
    ]
    dual = Dual(*problem)
    least = min(cost(problem, values) for values in all_values(problem))
    begin_coarsely(dual, groups, least, 60, 1 / 1000)
    merged = dual.lower
    assert merged <= least + NEAR
    dual.forward()
    dual.backward()
    assert merged - NEAR <= dual.lower <= least + NEAR, "passes go on from there"


@given(sums(most_variables=6, below=10))
def test_values_that_are_merged_with_none_are_bounded_as_ever(problem: Sum) -> None:
    dual, plain = Dual(*problem), Dual(*problem)
    least = min(cost(problem, values) for values in all_values(problem))
    begin_coarsely(dual, [np.arange(len(own)) for own in problem[0]], least, 60, 1 / 1000)
    plain.forward()
    plain.backward()
    assert plain.lower - NEAR <= dual.lower <= least + NEAR


def test_merged_values_cost_what_the_cheapest_of_them_does() -> None:
    own = [np.array([3.0, 1.0, 5.0]), np.array([0.0, 0.0])]
    table = np.array([[0.0, 2.0], [9.0, 9.0], [0.0, 0.0]])
    dual = Dual(own, [(0, 1, table)])
    chosen = begin_coarsely(dual, [np.array([0, 0, 1]), np.array([0, 1])], 10.0, 60, 1 / 1000)
    assert chosen[0] == 0, "the group of the first two values, one of which costs 1"
    assert dual.lower == 1.0, "1 of the second value, and nothing of the first with the first"
