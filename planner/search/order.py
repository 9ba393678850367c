"""An order of variable elimination, found once for a graph and used for all its tables.

Finding the order takes longer than carrying it out, since a training graph is the same few layers again and again: the
order is found once, and every sum of tables over the same scopes follows it. Variables are eliminated in rounds. In a
round no two are neighbours, those with the smallest buckets come first, and equal ones in the order of their kinds, so
that repeated layers are contracted in the same way in the same round; a chain of L equal layers takes about log L
rounds.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log2
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Pattern: TypeAlias = tuple[tuple[int, ...], ...]
"""For each factor of a bucket the axes of its table: 0 is the variable that goes, i the i-th of those that remain."""

_SLACK = 1.0
"""A round takes buckets up to this many times (as a power of two) its smallest: fewer rounds, hardly larger buckets."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Eliminations of one round whose buckets look alike: m variables, f factors and r neighbours each."""

    pattern: Pattern
    variables: Ints
    """Shape [m]."""
    rest: Ints
    """The neighbours, over which the result is a table; shape [m, r]."""
    factors: Ints
    """The factors of each bucket; shape [m, f]."""
    produced: Ints
    """The factor that each elimination makes; shape [m]."""


@dataclass(frozen=True, slots=True)
class Order:
    """How to eliminate all variables of a sum of factors."""

    variables: int
    scopes: int
    """How many factors there are to begin with; numbers from there on are factors that eliminations make."""
    rounds: tuple[Steps, ...]
    core: tuple[int, ...] = ()
    """Variables that are left, where the order ends before all are eliminated."""
    open: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Factors that are left, and their variables, all of the core."""

    def largest_bucket(self, sizes: NDArray[np.int64]) -> float:
        """Entries of the largest bucket, when the variables have so many values each."""
        bits = np.log2(sizes.astype(np.float64))
        largest = max(
            (float((bits[steps.variables] + bits[steps.rest].sum(axis=1)).max()) for steps in self.rounds), default=0.0
        )
        return float(round(2**largest)) if largest < 62 else 2.0**largest


def find_order(
    sizes: Sequence[int],
    scopes: Sequence[tuple[int, ...]],
    kinds: Sequence[int],
    *,
    most_neighbours: int | None = None,
    most_entries: float = inf,
) -> Order:
    """Finds an order with small buckets.

    Args:
        sizes: how many values each variable has, about; a variable with one value costs nothing.
        scopes: the variables of each factor; none twice in one.
        kinds: equal for variables of repeated layers.
        most_neighbours: leave variables with more than this many neighbours; None: eliminate all.
        most_entries: leave variables whose bucket is larger.
    """
    bits = [log2(max(1, size)) for size in sizes]
    neighbours: list[set[int]] = [set() for _ in sizes]
    touching: list[set[int]] = [set() for _ in sizes]
    all_scopes = list(scopes)
    for number, scope in enumerate(all_scopes):
        for variable in scope:
            touching[variable].add(number)
            neighbours[variable].update(scope)
    for variable, near in enumerate(neighbours):
        near.discard(variable)

    def bucket_bits(variable: int) -> float:
        return bits[variable] + sum([bits[near] for near in neighbours[variable]])

    most_bits = log2(most_entries)
    current = [bucket_bits(variable) for variable in range(len(sizes))]
    heap = [(size, kinds[variable], variable) for variable, size in enumerate(current)]
    heapq.heapify(heap)
    gone = [False] * len(sizes)
    rounds: list[Steps] = []
    while heap:
        taken: list[int] = []
        blocked: set[int] = set()
        later: list[tuple[float, int, int]] = []
        limit = None
        while heap:
            entry = heap[0]
            size, _, variable = entry
            if gone[variable] or size != current[variable]:
                heapq.heappop(heap)
                continue
            if size > most_bits or (most_neighbours is not None and len(neighbours[variable]) > most_neighbours):
                heapq.heappop(heap)
                continue
            if limit is None:
                limit = size + _SLACK
            elif size > limit:
                break
            heapq.heappop(heap)
            if variable in blocked:
                later.append(entry)
                continue
            taken.append(variable)
            gone[variable] = True
            blocked |= neighbours[variable]
        for entry in later:
            heapq.heappush(heap, entry)
        rounds.extend(_eliminated(taken, neighbours, touching, all_scopes))
        for variable in blocked:
            size = bucket_bits(variable)
            if size != current[variable] or most_neighbours is not None:
                current[variable] = size
                heapq.heappush(heap, (size, kinds[variable], variable))
    core = tuple(variable for variable, done in enumerate(gone) if not done)
    left = sorted({number for variable in core for number in touching[variable]})
    return Order(len(sizes), len(scopes), tuple(rounds), core, tuple((number, all_scopes[number]) for number in left))


def order_of(sequence: Sequence[int], variables: int, scopes: Sequence[tuple[int, ...]]) -> Order:
    """The order that eliminates variables one by one in a given sequence.

    Args:
        sequence: every variable that is in a scope, once.
        variables: how many there are.
        scopes: the variables of each factor; none twice in one.
    """
    neighbours: list[set[int]] = [set() for _ in range(variables)]
    touching: list[set[int]] = [set() for _ in range(variables)]
    all_scopes = list(scopes)
    for number, scope in enumerate(all_scopes):
        for variable in scope:
            touching[variable].add(number)
            neighbours[variable].update(scope)
    for variable, near in enumerate(neighbours):
        near.discard(variable)
    rounds = [steps for variable in sequence for steps in _eliminated([variable], neighbours, touching, all_scopes)]
    return Order(variables, len(scopes), tuple(rounds))


def _eliminated(
    taken: Sequence[int],
    neighbours: list[set[int]],
    touching: list[set[int]],
    scopes: list[tuple[int, ...]],
) -> list[Steps]:
    """Takes a round's variables out of the graph, and puts a factor over each one's neighbours in its place."""
    groups: dict[Pattern, list[tuple[int, tuple[int, ...], list[int], int]]] = {}
    for variable in taken:
        near = neighbours[variable]
        rest = tuple(sorted(near))
        axes = {name: axis for axis, name in enumerate((variable, *rest))}
        bucket = sorted(touching[variable])
        pattern = tuple(tuple([axes[name] for name in scopes[number]]) for number in bucket)
        for number in bucket:
            for other in scopes[number]:
                touching[other].discard(number)
        made = len(scopes)
        scopes.append(rest)
        for other in rest:
            there = neighbours[other]
            there |= near
            there.discard(other)
            there.discard(variable)
            touching[other].add(made)
        groups.setdefault(pattern, []).append((variable, rest, bucket, made))
    return [
        Steps(
            pattern,
            np.array([step[0] for step in steps], dtype=np.int64),
            np.array([step[1] for step in steps], dtype=np.int64).reshape(len(steps), -1),
            np.array([step[2] for step in steps], dtype=np.int64).reshape(len(steps), -1),
            np.array([step[3] for step in steps], dtype=np.int64),
        )
        for pattern, steps in groups.items()
    ]
