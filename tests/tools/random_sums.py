"""Random sums of tables of one and of two variables, small enough to look at every assignment."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st

from planner.search.bound.dual import Dual

Table = np.ndarray
Sum = tuple[list[Table], list[tuple[int, int, Table]]]


@st.composite
def sums(draw: st.DrawFn, most_variables: int, below: int) -> Sum:
    """Sums of whole numbers, as the tables of a search are; those of one variable are smaller than ``below``."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=most_variables))
    numbers = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    own = [numbers.integers(0, below, size).astype(float) for size in sizes]
    pairs = [
        (first, second, numbers.integers(0, 30, (sizes[first], sizes[second])).astype(float))
        for first, second in itertools.combinations(range(len(sizes)), 2)
        if draw(st.booleans())
    ]
    return own, pairs


def cost(problem: Sum, values: tuple[int, ...]) -> float:
    own, pairs = problem
    alone = sum(float(costs[value]) for costs, value in zip(own, values, strict=True))
    return alone + sum(float(table[values[first], values[second]]) for first, second, table in pairs)


def all_values(problem: Sum) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(len(costs)) for costs in problem[0])))


def given_bound(dual: Dual) -> float:
    """The sum of minima that what tables have given amounts to, added up table by table."""
    total = [costs.copy() for costs in dual.own]
    rest = 0.0
    for pair in dual.pairs:
        total[pair.first] += pair.to_first
        total[pair.second] += pair.to_second
        rest += float((pair.table - pair.to_first[:, None] - pair.to_second).min())
    return rest + sum(float(costs.min()) for costs in total)
