"""The bound of message passing against exhaustive enumeration of random sums of tables."""

import itertools

import numpy as np
import pytest
from grouped_dual import GroupedDual, reprice
from hypothesis import given
from hypothesis import strategies as st

from planner.search.bound.dual import Dual
from random_sums import Sum, all_values, cost, given_bound, sums

PASSES = 6
NEAR = 1e-6


@pytest.mark.parametrize("kind", [Dual, GroupedDual])
@given(sums(most_variables=5, below=20))
def test_the_bound_rises_stays_below_every_assignment_and_is_what_was_given(kind: type[Dual], problem: Sum) -> None:
    dual = kind(*problem)
    best = min(cost(problem, values) for values in all_values(problem))
    before = -np.inf
    for _ in range(PASSES):
        assert cost(problem, tuple(dual.forward())) >= best
        dual.backward()
        assert abs(given_bound(dual) - dual.lower) < NEAR
        assert before <= dual.lower <= best + NEAR
        before = dual.lower


@given(sums(most_variables=5, below=20))
def test_what_a_value_costs_at_least_is_no_more_than_it_does(problem: Sum) -> None:
    dual = Dual(*problem)
    for _ in range(PASSES):
        dual.forward()
        dual.backward()
    at_least = dual.at_least()
    everything = all_values(problem)
    assert everything
    for values in everything:
        for variable, value in enumerate(values):
            assert at_least[variable][value] <= cost(problem, values) + NEAR


@given(sums(most_variables=5, below=20), st.data())
def test_values_that_are_taken_out_change_no_cost_of_the_others(problem: Sum, data: st.DataObject) -> None:
    dual = Dual(*problem)
    dual.forward()
    dual.backward()
    kept = [np.array(sorted(data.draw(st.sets(st.integers(0, len(costs) - 1), min_size=1)))) for costs in problem[0]]
    dual.keep(kept)
    left = list(itertools.product(*(range(len(values)) for values in kept)))
    for values in left:
        original = tuple(int(own[value]) for own, value in zip(kept, values, strict=True))
        assert abs(dual.cost(values) - cost(problem, original)) < NEAR
    dual.forward()
    dual.backward()
    best = min(dual.cost(values) for values in left)
    assert dual.lower <= best + NEAR


def test_a_chain_is_closed_in_one_pass() -> None:
    numbers = np.random.default_rng(0)
    tables = [(i, i + 1, numbers.integers(0, 100, (4, 4)).astype(float)) for i in range(50)]
    dual = Dual([np.zeros(4) for _ in range(51)], tables)
    values = dual.forward()
    dual.backward()
    assert abs(dual.cost(dual.forward()) - dual.lower) < NEAR
    assert len(values) == 51


@given(sums(most_variables=5, below=20), st.data())
def test_a_part_of_the_values_is_bounded_by_itself(problem: Sum, data: st.DataObject) -> None:
    """And goes on from what the whole has found, which stays what it is."""
    dual = Dual(*problem)
    dual.forward()
    dual.backward()
    before = [costs.copy() for costs in dual.at_least()]
    subsets = [st.sets(st.integers(0, len(own) - 1), min_size=1) for own in problem[0]]
    kept = [np.array(sorted(data.draw(subset))) for subset in subsets]
    part = dual.among(kept)
    least = min(cost(problem, values) for values in itertools.product(*(own.tolist() for own in kept)))
    guess = [int(own[value]) for own, value in zip(kept, part.forward(), strict=True)]
    part.backward()
    assert part.lower <= least + NEAR
    assert cost(problem, tuple(guess)) >= least
    assert all(np.array_equal(one, other) for one, other in zip(before, dual.at_least(), strict=True))


@given(sums(most_variables=5, below=20), st.data())
def test_other_costs_of_the_same_values_are_bounded_anew(problem: Sum, data: st.DataObject) -> None:
    """Whatever passes over the costs before have given."""
    dual = Dual(*problem)
    dual.forward()
    dual.backward()
    draws = [st.lists(st.integers(0, 20), min_size=len(own), max_size=len(own)) for own in problem[0]]
    other = ([np.array(data.draw(draw), dtype=float) for draw in draws], problem[1])
    reprice(dual, other[0])
    best = min(cost(other, values) for values in all_values(other))
    dual.forward()
    dual.backward()
    assert dual.lower <= best + NEAR
    assert min(dual.cost(values) for values in all_values(other)) == best
