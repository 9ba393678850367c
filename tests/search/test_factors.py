"""Cuts, from numbers of workers and from levels of machines."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import opdefs
from planner.cost.seconds.depth import depths
from planner.features.zoo.models import mlp
from planner.search.decide import STRATEGIES, decide
from planner.search.model.cuts import cuts_of_levels, prime_factors
from planner.search.request import SearchRequest
from transformers_only import OF_TRANSFORMERS


def test_one_level_is_cut_as_the_paper_does() -> None:
    assert [prime_factors(workers) for workers in (1, 2, 6, 8, 72)] == [(), (2,), (3, 2), (2, 2, 2), (3, 3, 2, 2, 2)]
    assert [cuts_of_levels((workers,)) for workers in (1, 6, 72)] == [(), (3, 2), (3, 3, 2, 2, 2)]


def test_levels_are_cut_one_after_the_other() -> None:
    assert cuts_of_levels((4, 18)) == (2, 2, 3, 3, 2)
    assert cuts_of_levels((2, 3, 4)) == (2, 3, 2, 2)
    assert cuts_of_levels((1, 4, 1)) == (2, 2)
    assert cuts_of_levels(()) == ()


@given(st.lists(st.integers(1, 12), max_size=3).filter(lambda levels: prod(levels) <= 288))
def test_a_cut_is_never_of_two_levels(levels: list[int]) -> None:
    cuts = cuts_of_levels(levels)
    assert prod(cuts) == prod(levels)
    depth = depths(cuts)
    for level in range(1, len(levels) + 1):
        # Workers of one group of this level, as devices are numbered, are those with their first cuts in common.
        size, common = prod(levels[level:]), len(cuts_of_levels(levels[:level]))
        for worker in range(len(depth)):
            group = [other for other in range(len(depth)) if other // size == worker // size]
            assert [other for other in range(len(depth)) if depth[worker, other] >= common] == group


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name not in OF_TRANSFORMERS])
def test_every_strategy_keeps_to_the_levels_or_cuts_once(name: str) -> None:
    graph = mlp(2, 24, 36)
    plan = decide(graph, opdefs.standard().bind_all(graph), SearchRequest(6, cuts=(2, 3), strategy=name))
    assert plan.cuts == ((6,) if name in ("equalchop", "spartan") else (2, 3))
