"""Node and edge elimination against enumeration of all strategies."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InfeasibleError
from planner.search.literature.layer_elimination import Costs, least


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Costs], dict[tuple[int, int], Costs]]:
    """Layers with few configurations, and edges between any of them."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))
    pairs = list(itertools.combinations(range(len(sizes)), 2))
    joined = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []

    def costs(*shape: int) -> Costs:
        count = int(np.prod(shape))
        values = draw(st.lists(st.integers(0, 50), min_size=count, max_size=count))
        return np.array(values, dtype=np.int64).reshape(shape)

    return [costs(size) for size in sizes], {(one, other): costs(sizes[one], sizes[other]) for one, other in joined}


def total(layers: list[Costs], edges: dict[tuple[int, int], Costs], chosen: tuple[int, ...]) -> int:
    own = sum(int(costs[value]) for costs, value in zip(layers, chosen, strict=True))
    return own + sum(int(costs[chosen[one], chosen[other]]) for (one, other), costs in edges.items())


@given(graphs())
def test_the_best_of_all_strategies(graph: tuple[list[Costs], dict[tuple[int, int], Costs]]) -> None:
    layers, edges = graph
    every = itertools.product(*(range(len(costs)) for costs in layers))
    best = least(layers, edges)
    assert best.total == total(layers, edges, best.configurations)
    assert best.total == min(total(layers, edges, chosen) for chosen in every)


def test_what_cannot_be_eliminated_is_enumerated() -> None:
    """Four layers, each joined to all others, have three edges each."""
    pairs = itertools.combinations(range(4), 2)
    edges: dict[tuple[int, int], Costs] = {pair: np.ones((2, 2), dtype=np.int64) for pair in pairs}
    best = least([np.array([3, 1])] * 4, edges)
    assert (best.core_layers, best.total, best.configurations) == (4, 4 * 1 + 6, (1, 1, 1, 1))


def test_too_many_strategies_are_refused() -> None:
    pairs = itertools.combinations(range(9), 2)
    edges: dict[tuple[int, int], Costs] = {pair: np.zeros((8, 8), dtype=np.int64) for pair in pairs}
    with pytest.raises(InfeasibleError, match="leaves 9 layers"):
        least([np.zeros(8, dtype=np.int64)] * 9, edges)
