"""Bounds by cases and by blocks against exhaustive enumeration of random sums of tables."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.search.bound import blocks, cases
from planner.search.bound.blocks import bound_by_blocks
from planner.search.bound.cases import Dividers, Work, least_by_cases
from planner.search.bound.dual import Dual
from planner.search.bound.parts import in_parts
from random_sums import Sum, all_values, cost, sums

NEAR = 1e-6
MUCH = 1e9


def least(problem: Sum) -> float:
    return min(cost(problem, values) for values in all_values(problem))


def by_cases(problem: Sum, cap: float, entries: float) -> float:
    return least_by_cases(*problem, cap, Work(entries), range(len(problem[0])), Dividers(Work(entries)))


def passed_over(problem: Sum, passes: int) -> Dual:
    dual = Dual(*problem)
    for _ in range(passes):
        dual.forward()
        dual.backward()
    return dual


@given(sums(most_variables=6, below=10), st.integers(0, 200), st.booleans())
def test_cases_find_the_least_below_the_cap(problem: Sum, cap: int, may_eliminate: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if not may_eliminate:
            patch.setattr(cases, "_BUCKET", 0)
        asked = min(cap, least(problem))
        assert asked * (1 - cases._NOTHING) - NEAR <= by_cases(problem, cap, MUCH) <= asked + NEAR


@given(sums(most_variables=6, below=10), st.integers(1, 200), st.integers(0, 1_000_000))
def test_a_bound_by_cases_holds_whenever_work_ends(problem: Sum, cap: int, entries: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cases, "_BUCKET", 0)
        assert 0 <= by_cases(problem, cap, entries) <= min(cap, least(problem)) + NEAR


def test_three_that_want_to_differ_are_closed_by_cases_and_not_by_passes() -> None:
    alike = np.eye(2)
    problem = ([np.zeros(2)] * 3, [(0, 1, alike), (1, 2, alike), (0, 2, alike)])
    assert passed_over(problem, 50).lower < NEAR
    assert by_cases(problem, 5.0, MUCH) == least(problem) == 1.0


@given(sums(most_variables=6, below=10), st.integers(0, 4))
def test_what_is_left_is_nowhere_negative_and_sums_to_the_same(problem: Sum, passes: int) -> None:
    rest = passed_over(problem, passes).rest()
    assert all(costs.min() >= 0 for costs in rest.own)
    tables = [rest.table(number) for number in range(len(rest.pairs))]
    for values in all_values(problem):
        left = sum(float(costs[value]) for costs, value in zip(rest.own, values, strict=True))
        for number, (pair, _) in enumerate(rest.pairs):
            at = values[pair.first], values[pair.second]
            assert abs(tables[number][at] - rest.at(number, *at)) < NEAR
            left += float(tables[number][at])
        assert abs(rest.constant + left - cost(problem, values)) < NEAR


@given(sums(most_variables=6, below=10), st.data())
def test_a_case_bounds_the_assignments_with_its_value(problem: Sum, data: st.DataObject) -> None:
    variable = data.draw(st.integers(0, len(problem[0]) - 1))
    value = data.draw(st.integers(0, len(problem[0][variable]) - 1))
    whole = passed_over(problem, 2)
    before = whole.rest().constant
    case = whole.case({variable: value})
    for _ in range(3):
        case.forward()
        case.backward()
    assert case.lower <= min(cost(problem, one) for one in all_values(problem) if one[variable] == value) + NEAR
    assert whole.rest().constant == before, "the case has what is given to itself"


@given(
    sums(most_variables=6, below=10), st.integers(0, 4), st.sampled_from([(1, 1), (1, 3), (2, 4), (50, 120)]), st.data()
)
def test_a_bound_by_blocks_is_below_every_assignment(
    problem: Sum, passes: int, variables: tuple[int, int], data: st.DataObject
) -> None:
    rest = passed_over(problem, passes).rest()
    everything = all_values(problem)
    known = data.draw(st.sampled_from(everything))
    entries = data.draw(st.sampled_from([0.0, 1e5, MUCH]))
    kinds = [len(costs) for costs in problem[0]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_VARIABLES", variables)
        found = bound_by_blocks(rest, known, kinds, entries, Dividers(Work(entries)))
    best = least(problem)
    assert rest.constant - NEAR <= found.lower <= best + NEAR
    if variables[1] >= len(kinds) and entries == MUCH and known == min(everything, key=lambda one: cost(problem, one)):
        assert abs(found.lower - best) < 0.01 + blocks._NOTHING * best, "one block is the whole sum"
    for values in everything:
        # What costs more than the known assignment may be said to cost any more than that.
        for variable, value in enumerate(values):
            assert min(found.at_least[variable][value], cost(problem, known)) <= cost(problem, values) + NEAR


@given(st.integers(1, 12), st.integers(1, 6), st.data())
def test_parts_hold_every_variable_once(count: int, most: int, data: st.DataObject) -> None:
    possible = list(itertools.combinations(range(count), 2))
    pairs = data.draw(st.lists(st.sampled_from(possible), unique=True)) if possible else []
    least_ = data.draw(st.integers(1, most))
    parts = in_parts([float(1 + number % 3) for number in range(count)], pairs, least_, most)
    assert sorted(variable for part in parts for variable in part) == list(range(count))
    assert all(least_ <= len(part) <= most for part in parts[:-1])
    assert 1 <= len(parts[-1]) <= most


def test_parts_end_where_few_variables_join_them() -> None:
    size, blocks_ = 6, 5
    pairs = [
        (size * block + first, size * block + second)
        for block in range(blocks_)
        for first, second in itertools.combinations(range(size), 2)
    ]
    pairs += [(size * block + size - 1, size * (block + 1)) for block in range(blocks_ - 1)]
    parts = in_parts([1.0] * size * blocks_, pairs, 4, 9)
    assert sorted(sorted(part) for part in parts) == [
        list(range(size * block, size * block + size)) for block in range(blocks_)
    ]
