"""Elimination against exhaustive enumeration of random sums of tables."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InfeasibleError
from planner.search.exact.eliminate import MAX_TABLE_ENTRIES, Factor, minimise


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[int], list[Factor]]:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    factors = []
    for _ in range(draw(st.integers(0, 8))):
        scope = tuple(draw(st.permutations(range(len(sizes))))[: draw(st.integers(1, min(3, len(sizes))))])
        entries = int(np.prod([sizes[name] for name in scope]))
        values = draw(st.lists(st.integers(0, 50), min_size=entries, max_size=entries))
        factors.append(Factor(scope, np.array(values, dtype=np.int64).reshape([sizes[name] for name in scope])))
    return sizes, factors


def total(factors: list[Factor], values: tuple[int, ...]) -> int:
    return sum(int(factor.table[tuple(values[name] for name in factor.variables)]) for factor in factors)


@given(problems())
def test_the_minimum_is_that_of_enumeration(problem: tuple[list[int], list[Factor]]) -> None:
    sizes, factors = problem
    solution = minimise(sizes, factors)
    best = min(total(factors, values) for values in itertools.product(*map(range, sizes)))
    assert solution.total == best
    assert total(factors, tuple(solution.values.tolist())) == best


def test_of_equal_values_the_first_is_taken() -> None:
    assert minimise([3, 3], [Factor((0, 1), np.zeros((3, 3), dtype=np.int64))]).values.tolist() == [0, 0]


def test_a_hundred_decided_variables_in_one_bucket_are_no_matter() -> None:
    table = np.array([[5], [3]], dtype=np.int64)
    solution = minimise([2, *[1] * 100], [Factor((0, other), table) for other in range(1, 101)])
    assert solution.values[0] == 1
    assert solution.total == 300


def test_a_chain_of_a_thousand_variables() -> None:
    rng = np.random.default_rng(0)
    tables = rng.integers(0, 100, (999, 4, 4))
    solution = minimise([4] * 1000, [Factor((i, i + 1), table) for i, table in enumerate(tables)])
    best = np.zeros(4, dtype=np.int64)
    for table in tables:
        best = (best[:, None] + table).min(axis=0)
    assert solution.total == best.min()
    assert solution.largest_table <= 64


def test_a_graph_that_is_too_entangled_is_refused_and_not_guessed() -> None:
    size, count = 8, 12
    assert size**count > MAX_TABLE_ENTRIES
    table = np.ones((size, size), dtype=np.int64)
    factors = [Factor(pair, table) for pair in itertools.combinations(range(count), 2)]
    with pytest.raises(InfeasibleError, match="needs a table"):
        minimise([size] * count, factors)


def test_the_minimum_over_very_many_values_of_one_variable() -> None:
    """A bucket this large is minimised value by value, here without any neighbour."""
    table = np.arange(200_000, dtype=np.int64)[::-1] + 7
    solution = minimise([len(table)], [Factor((0,), table)])
    assert (solution.total, solution.values.tolist()) == (7, [199_999])
    far = minimise([400, 400], [Factor((0,), table[:400]), Factor((0, 1), table[:160_000].reshape(400, 400))])
    assert (far.total, far.values.tolist()) == (199_607 + 40_007, [399, 399])
