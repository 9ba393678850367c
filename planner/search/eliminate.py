"""Variable elimination: the exact minimum of a sum of tables over discrete variables.

SoyBean's BFS-level dynamic programme (section 4), Tofu's over forward and backward groups (section 5.1) and
OptCNN's node and edge elimination (section 5) are orders of it. Time and memory are exponential only in the
induced width of the order, which is small on training graphs.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.errors import InfeasibleError

MAX_TABLE_ENTRIES = 1 << 26
"""A bucket larger than this would not fit in memory; the search refuses rather than guesses."""


@dataclass(frozen=True, slots=True)
class Factor:
    """A table over some variables: axis i of ``table`` is the value of ``variables[i]``."""

    variables: tuple[int, ...]
    table: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Solution:
    """A minimising assignment."""

    values: tuple[int, ...]
    """The chosen value of each variable."""
    total: int
    """The sum of all tables there."""
    largest_table: int
    """Entries of the largest bucket, as a measure of the induced width."""


def minimise(sizes: Sequence[int], factors: Sequence[Factor], max_table_entries: int = MAX_TABLE_ENTRIES) -> Solution:
    """Finds the least sum of all factors over all assignments.

    Variables are eliminated smallest bucket first; ties go to the variable with the lower number, and of equal
    values the first wins, so the result depends on nothing but the arguments.

    Args:
        sizes: the number of values of each variable; at least 1.
        factors: tables over variables; each at most once in a factor.
        max_table_entries: how large a bucket may be.

    Raises:
        InfeasibleError: a bucket would be larger.
    """
    memo: _Memo = {}
    by_variable: list[dict[int, Factor]] = [{} for _ in sizes]
    neighbours: list[set[int]] = [set() for _ in sizes]
    constant = 0
    serial = 0

    def add(factor: Factor) -> None:
        nonlocal serial, constant
        if not factor.variables:
            constant += int(factor.table)
            return
        for variable in factor.variables:
            by_variable[variable][serial] = factor
            neighbours[variable].update(factor.variables)
            neighbours[variable].discard(variable)
        serial += 1

    for factor in _merged([_without_decided(factor) for factor in factors]):
        add(factor)

    def bucket_entries(variable: int) -> int:
        return prod((sizes[near] for near in neighbours[variable]), start=sizes[variable])

    heap = [(bucket_entries(variable), variable) for variable in range(len(sizes))]
    heapq.heapify(heap)
    eliminated = [False] * len(sizes)
    steps: list[tuple[int, tuple[int, ...], NDArray[np.intp]]] = []
    largest = 1
    while heap:
        entries, variable = heapq.heappop(heap)
        if eliminated[variable]:
            continue
        current = bucket_entries(variable)
        if current != entries:
            heapq.heappush(heap, (current, variable))
            continue
        if entries > max_table_entries:
            raise InfeasibleError(
                f"the search needs a table of {entries:,} entries, more than {max_table_entries:,}",
                hint="the graph is too entangled for an exact search at this many ways",
            )
        largest = max(largest, entries)
        rest = tuple(sorted(neighbours[variable]))
        bucket = list(by_variable[variable].items())
        least, choice = _least(variable, rest, [factor for _, factor in bucket], sizes, memo)
        steps.append((variable, rest, choice))
        eliminated[variable] = True
        for number, factor in bucket:
            for other in factor.variables:
                if other != variable:
                    by_variable[other].pop(number, None)
        for other in rest:
            neighbours[other].discard(variable)
        add(Factor(rest, least))
        for other in rest:
            heapq.heappush(heap, (bucket_entries(other), other))
    values = [0] * len(sizes)
    for variable, rest, choice in reversed(steps):
        values[variable] = int(choice[tuple(values[other] for other in rest)])
    return Solution(tuple(values), constant, largest)


_Memo: TypeAlias = dict[
    tuple[tuple[int, tuple[int, ...]], ...],
    tuple[NDArray[np.int64], NDArray[np.intp], list[NDArray[np.int64]]],
]
"""By what is in a bucket (each table's identity and axes): the least sums, the choices, and the tables themselves,
which are kept so that an identity stays theirs."""


def _least(
    variable: int, rest: tuple[int, ...], factors: Sequence[Factor], sizes: Sequence[int], memo: _Memo
) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """The least sum of a bucket's factors over the variable, and where it is, for each value of the rest.

    Repeated layers bring the very same tables; their buckets are looked up, and since the results are then the same
    arrays again, so are the buckets that follow.
    """
    axes = {name: axis for axis, name in enumerate((variable, *rest))}
    key = tuple((id(factor.table), tuple(axes[name] for name in factor.variables)) for factor in factors)
    known = memo.get(key)
    if known is None:
        total = _sum(axes, factors, sizes)
        known = memo[key] = (total.min(axis=0), total.argmin(axis=0), [factor.table for factor in factors])
    return known[0], known[1]


def _without_decided(factor: Factor) -> Factor:
    """The factor without the variables that have one value: they are decided, and a table has at most 64 axes."""
    if 1 not in factor.table.shape:
        return factor
    kept = tuple(name for name, size in zip(factor.variables, factor.table.shape, strict=True) if size > 1)
    return Factor(kept, factor.table.reshape([size for size in factor.table.shape if size > 1]))


def _merged(factors: Sequence[Factor]) -> list[Factor]:
    """Factors over the same variables, added up."""
    by_scope: dict[tuple[int, ...], NDArray[np.int64]] = {}
    for factor in factors:
        known = by_scope.get(factor.variables)
        by_scope[factor.variables] = factor.table if known is None else known + factor.table
    return [Factor(scope, table) for scope, table in by_scope.items()]


def _sum(axes: Mapping[int, int], factors: Sequence[Factor], sizes: Sequence[int]) -> NDArray[np.int64]:
    """The sum of factors as a table over the variables of ``axes``, in their order."""
    total: NDArray[np.int64] = np.zeros([sizes[name] for name in axes], dtype=np.int64)
    for factor in factors:
        order = sorted(range(len(factor.variables)), key=lambda position: axes[factor.variables[position]])
        shape = [1] * total.ndim
        for name in factor.variables:
            shape[axes[name]] = sizes[name]
        total += factor.table.transpose(order).reshape(shape)
    return total
