"""Tables 1 and 2 of SPAA'21: the rows against numeric optima of equations 4 and 3."""

from __future__ import annotations

from collections import Counter
from math import sqrt
from random import Random

import pytest
from distcnn_figures import drawn, drawn_small, equation_3, equation_4
from paper_tables import Sizes, paper_tables, usable_memory, width

from planner.errors import UsageError

PROBLEMS = 400


def test_table_1_is_the_optimum_of_equation_4_in_all_four_cases() -> None:
    random, seen = Random(20), Counter[str]()
    for _ in range(PROBLEMS):
        sizes, processors, memory = drawn(random)
        row, _ = paper_tables(sizes, processors, memory)
        found = equation_4(sizes, processors, row.m_l)
        seen[row.case] += 1
        if row.p_c <= sizes.c:  # else so many processors cannot share a sum
            assert found == pytest.approx(row.words, rel=1e-3)
        assert found >= row.words * (1 - 1e-9)
    assert min(seen[case] for case in ("1a", "1b", "2a", "2b")) >= 10, seen


def test_a_row_says_tiles_that_cost_what_it_says() -> None:
    random = Random(21)
    for _ in range(PROBLEMS):
        sizes, processors, memory = drawn(random)
        row, _ = paper_tables(sizes, processors, memory)
        (_, t_k), (_, t_bhw) = row.tile
        work = sizes.k * sizes.c * sizes.positions / processors
        held = row.p_c * sizes.k * sizes.positions / processors
        assert held + work * (sizes.taps / t_bhw + sizes.strides / t_k) == pytest.approx(row.words)
        assert t_k * t_bhw <= row.m_l * (1 + 1e-9)


def test_table_2_is_the_least_of_three_loops_and_has_no_case_1b() -> None:
    """The geometric mean of the parts of the three tensors is below (V K)^(2/3), and so is one of them."""
    random = Random(22)
    for _ in range(PROBLEMS):
        sizes, processors, memory = drawn(random)
        first, second = paper_tables(sizes, processors, memory)
        assert second.words <= first.words
        assert second.case != "1b"


def test_the_words_that_are_left_for_a_tile() -> None:
    sizes = Sizes(8, 64, 64, 14, 14, 3, 3)
    left = usable_memory(sizes, 1e5)
    assert left + 3 * 3 * sqrt(left) == pytest.approx(1e5)
    assert width(1, 2, 3) == 3
    assert width(4, 2, 3) == 9


def test_a_stride_beyond_the_window_has_no_bound() -> None:
    assert paper_tables(Sizes(8, 64, 64, 14, 14, 3, 3, 2, 2), 8, 1e5)[0].is_bound
    assert not paper_tables(Sizes(8, 64, 64, 14, 14, 1, 1, 2, 2), 8, 1e5)[0].is_bound


def test_a_halo_can_be_more_than_the_memory_that_is_left() -> None:
    """9 taps in little memory: the tile of the input is mostly halo."""
    assert not paper_tables(Sizes(1, 64, 64, 14, 14, 9, 9), 8, 400)[0].tile_fits
    assert paper_tables(Sizes(8, 64, 64, 14, 14), 8, 1e5)[0].tile_fits


@pytest.mark.parametrize(("processors", "memory"), [(0, 1.0), (8, 0.0)])
def test_nonsense_is_refused(processors: int, memory: float) -> None:
    with pytest.raises(UsageError, match="processors"):
        paper_tables(Sizes(1, 1, 1, 1, 1), processors, memory)


def test_no_integer_schedule_is_below_the_bound() -> None:
    random, seen = Random(23), 0
    for _ in range(40):
        sizes, processors, memory = drawn_small(random)
        found = equation_3(sizes, processors, memory)
        row, _ = paper_tables(sizes, processors, memory, as_bound=True)
        if found < float("inf"):
            assert row.words <= found * (1 + 1e-9)
            seen += 1
    assert seen >= 20
