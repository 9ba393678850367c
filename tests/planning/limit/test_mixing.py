"""Mixing a plan that fits with a cheaper one, with parts that are numbers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, combinations

from hypothesis import given
from hypothesis import strategies as st

from planner.planning.limit.mixing import components, mixed


def test_components_are_what_hangs_together() -> None:
    links = [("a", "b"), ("b", "c"), ("d", "e"), ("e", "x"), ("x", "f")]
    found = components(["a", "b", "c", "d", "e", "f"], links)
    assert sorted(sorted(part) for part in found) == [["a", "b", "c"], ["d", "e"], ["f"]]
    assert components([], links) == ()


parts = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), min_size=1, max_size=7)


@given(parts, st.integers(0, 100))
def test_mixing_fits_and_costs_no_more_than_the_plan_that_fits(sizes: list[tuple[int, int]], spare: int) -> None:
    every = [((str(number),), moved, held) for number, (moved, held) in enumerate(sizes)]
    wanted = max(0, sum(held for _, held in sizes) - spare)

    def is_fitting(chosen: Iterable[str]) -> bool:
        return sum(sizes[int(name)][1] for name in chosen) >= wanted

    def objective(chosen: Iterable[str]) -> int:
        return sum(sizes[int(name)][0] for name in chosen)

    found = mixed(every, is_fitting)
    assert is_fitting(found)
    names = [str(number) for number in range(len(sizes))]
    subsets = chain.from_iterable(combinations(names, count) for count in range(len(names) + 1))
    best = min(objective(subset) for subset in subsets if is_fitting(subset))
    # Taken in the order of their price, the fewest that fit: at most the last one is too much.
    assert best <= objective(found) <= best + max(moved for moved, _ in sizes)
