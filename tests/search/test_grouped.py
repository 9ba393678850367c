"""Passes over many variables at once, against exhaustive enumeration and one variable after the other."""

import numpy as np
from grouped_dual import GroupedDual, reprice
from hypothesis import given
from hypothesis import strategies as st

from planner.search.bound.dual import Dual
from random_sums import Sum, all_values, cost, given_bound, sums

PASSES = 6
NEAR = 1e-6


def test_a_tree_is_closed_as_by_one_variable_after_the_other() -> None:
    numbers = np.random.default_rng(0)
    tables = [(i // 2, i, numbers.integers(0, 100, (2 + i // 2 % 3, 2 + i % 3)).astype(float)) for i in range(1, 40)]
    own = [numbers.integers(0, 100, 2 + i % 3).astype(float) for i in range(40)]
    plain, grouped = Dual(own, tables), GroupedDual(own, tables)
    for dual in (plain, grouped):
        for _ in range(30 * PASSES):
            dual.forward()
            dual.backward()
    assert abs(plain.lower - grouped.lower) < NEAR
    assert abs(grouped.cost(grouped.forward()) - plain.lower) < NEAR


@given(sums(most_variables=5, below=20), st.integers(0, 10))
def test_entries_beyond_the_best_plan_are_cut_off_and_what_was_given_is_gone_on_with(problem: Sum, more: int) -> None:
    own, tables = problem
    dual = GroupedDual(own, [(one, other, table.copy()) for one, other, table in tables])
    best = min(cost(problem, values) for values in all_values(problem))
    dual.forward()
    dual.backward()
    held = dual.given()
    dual.cut_off(best + more)
    dual.give(held)
    reprice(dual, dual.own)
    values = dual.forward()
    dual.backward()
    assert dual.lower <= best + NEAR
    assert abs(given_bound(dual) - dual.lower) < NEAR
    assert cost(problem, tuple(values)) >= best


@given(sums(most_variables=5, below=20), st.data())
def test_fewer_values_are_bounded_by_themselves(problem: Sum, data: st.DataObject) -> None:
    dual = GroupedDual(*problem)
    dual.forward()
    kept = [np.array(sorted(data.draw(st.sets(st.integers(0, len(costs) - 1), min_size=1)))) for costs in problem[0]]
    dual.keep(kept)
    dual.forward()
    dual.backward()
    inside = [values for values in all_values(problem) if all(v in own for v, own in zip(values, kept, strict=True))]
    assert inside
    assert dual.lower <= min(cost(problem, values) for values in inside) + NEAR
