"""Least cuts, against all cuts of small networks."""

from __future__ import annotations

import random
from itertools import chain, combinations

from planner.planning.recomputation.min_cut import Arc, least_cut

NODES = 6


def weight(side: frozenset[int], arcs: list[Arc]) -> float:
    """What a cut weighs."""
    cut = [float("inf") if arc[2] is None else arc[2] for arc in arcs if arc[0] in side and arc[1] not in side]
    return sum(cut)


def test_no_cut_weighs_less_and_none_of_the_same_weight_is_smaller() -> None:
    drawn = random.Random(0)
    inner = range(2, NODES)
    sides = [frozenset((0, *one)) for one in chain.from_iterable(combinations(inner, n) for n in range(NODES - 1))]
    found: list[tuple[float, int]] = []
    expected: list[tuple[float, int]] = []
    for _ in range(60):
        pairs = [(a, b) for a in range(NODES) for b in range(NODES) if a != b and drawn.random() < 0.5]
        arcs: list[Arc] = [
            (a, b, None if drawn.random() < 0.15 and (a, b) != (0, 1) and 1 not in (a, b) else drawn.randint(0, 9))
            for a, b in pairs
        ]
        least = least_cut(NODES, 0, 1, arcs)
        assert 0 in least
        assert 1 not in least
        found.append((weight(least, arcs), len(least)))
        expected.append(min((weight(side, arcs), len(side)) for side in sides))
    assert found == expected
