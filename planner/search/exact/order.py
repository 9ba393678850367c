"""An order of variable elimination, found once for a graph and used for all its tables.

Finding the order takes longer than carrying it out, since a training graph is the same few layers again and again: the
order is found once, and every sum of tables over the same scopes follows it. Variables are eliminated in rounds. In a
round no two are neighbours, those with the smallest buckets come first, and equal ones in the order of their kinds, so
that repeated layers are contracted in the same way in the same round; a chain of L equal layers takes about log L
rounds.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, log2
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.search.effort import COUNTING_SORT_RANGE, HASH_FACTOR, ORDER_PASSES, ORDER_SLACK_BITS, SMALL_BUCKET_BITS

Ints: TypeAlias = NDArray[np.int64]
Pattern: TypeAlias = tuple[tuple[int, ...], ...]
"""For each factor of a bucket the axes of its table: 0 is the variable that goes, i the i-th of those that remain."""


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
class Batch:
    """Eliminations none of which needs what another one makes: m variables."""

    patterns: tuple[Pattern, ...]
    pattern: Ints
    """By variable its bucket's among the patterns; shape [m]."""
    variables: Ints
    """Shape [m]."""
    rest: Ints
    """The neighbours; rows are filled up with variable 0. Shape [m, most neighbours]."""
    factors: Ints
    """The factors of each bucket; rows are filled up with -1. Shape [m, most factors]."""
    produced: Ints
    """The factor that each elimination makes; shape [m]."""

    @classmethod
    def of(cls, together: Sequence[Steps]) -> Batch:
        """Makes one of several steps."""
        numbers: dict[Pattern, int] = {}
        number = [numbers.setdefault(steps.pattern, len(numbers)) for steps in together]
        most = max(steps.rest.shape[1] for steps in together)
        widest = max(steps.factors.shape[1] for steps in together)
        return cls(
            tuple(numbers),
            np.repeat(number, [len(steps.variables) for steps in together]),
            np.concatenate([steps.variables for steps in together]),
            np.concatenate([_filled_up(steps.rest, most, 0) for steps in together]),
            np.concatenate([_filled_up(steps.factors, widest, -1) for steps in together]),
            np.concatenate([steps.produced for steps in together]),
        )


@dataclass(frozen=True)
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

    @cached_property
    def batches(self) -> tuple[Batch, ...]:
        """The same eliminations, as many together as there can be without another order."""
        together: list[list[Steps]] = []
        first = 0
        for steps in self.rounds:
            if not together or steps.factors.max(initial=-1) >= first:
                together.append([])
                first = int(steps.produced.min())
            together[-1].append(steps)
        return tuple(map(Batch.of, together))

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
    left = _Left(len(sizes), scopes)
    bits = np.log2(np.maximum(1, np.array(sizes, dtype=np.float64)))
    most = _Limits(log2(most_entries), len(sizes) if most_neighbours is None else most_neighbours)
    kind = np.array(kinds, dtype=np.int64)
    rounds: list[Steps] = []
    while (taken := left.independent(bits[left.names], kind[left.names], most)).size:
        rounds.extend(left.eliminate(taken))
        left.compact()
    return Order(len(sizes), len(scopes), tuple(rounds), left.core(), left.open())


def order_of(sequence: Sequence[int], variables: int, scopes: Sequence[tuple[int, ...]]) -> Order:
    """The order that eliminates variables one by one in a given sequence.

    Args:
        sequence: every variable that is in a scope, once.
        variables: how many there are.
        scopes: the variables of each factor; none twice in one.
    """
    left = _Left(variables, scopes)
    rounds = [steps for variable in sequence for steps in left.eliminate(np.array([variable]))]
    return Order(variables, len(scopes), tuple(rounds))


def distinct(numbers: Ints, below: int) -> tuple[Ints, Ints]:
    """The different ones of numbers from 0 to ``below``, exclusive, ascending: the first place of each, and each
    number's among them.
    """
    if below > COUNTING_SORT_RANGE * (1 + len(numbers)):
        _, first, group = np.unique(numbers, return_index=True, return_inverse=True)
        return first, group.astype(np.int64, copy=False)
    places = np.full(below, -1)
    places[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)  # of equal indices the last one counts
    there = np.flatnonzero(places >= 0)
    first = places[there]
    places[there] = np.arange(len(there))
    return first, places[numbers]


def distinct_rows(rows: Ints, below: int) -> tuple[Ints, Ints]:
    """The different rows of a matrix of numbers from 0 to ``below``, exclusive: the first of each, and each row's."""
    keys, count = np.zeros(len(rows), dtype=np.int64), 1
    for column in rows.T:
        if count > (1 << 62) // max(1, below):
            different, keys = np.unique(keys, return_inverse=True)
            count = len(different)
        keys, count = keys * below + column, count * below
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return first, group.astype(np.int64, copy=False)


@dataclass(frozen=True, slots=True)
class _Limits:
    """Which variables may be eliminated."""

    bits: float
    """The largest bucket, as a power of two."""
    neighbours: int


class _Left:
    """What is left of the graph: variables, factors, and which variables are neighbours.

    Variables have numbers of their own here, which change when many have gone.

    Attributes:
        names: of each variable, by which number it is known outside.
    """

    def __init__(self, variables: int, scopes: Sequence[tuple[int, ...]]) -> None:
        self._count = variables
        self.names = np.arange(variables)
        self._alive = np.ones(variables, dtype=bool)
        widest = max(map(len, scopes), default=1)
        self._factors = np.arange(len(scopes))
        # Row by row the variables of a factor; rows are filled up with -1, which stands for no variable.
        self._scopes = np.full((len(scopes), widest), -1)
        lengths = np.array([len(scope) for scope in scopes], dtype=np.int64)
        flat = np.fromiter(itertools.chain.from_iterable(scopes), dtype=np.int64, count=int(lengths.sum()))
        self._scopes[np.arange(widest) < lengths[:, None]] = flat
        self._made = len(scopes)
        pairs = [self._scopes[:, [one, other]] for one in range(widest) for other in range(widest) if one != other]
        both = np.concatenate(pairs) if pairs else np.zeros((0, 2), dtype=np.int64)
        both = both[(both >= 0).all(axis=1)]
        # Every neighbourhood twice, as variable * count + neighbour, sorted.
        self._near: Ints = np.unique(both[:, 0] * variables + both[:, 1])
        self._one, self._other = np.divmod(self._near, max(1, variables))

    def open(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """The factors that are left, with their variables."""
        names = np.append(self.names, -1)
        found = zip(self._factors.tolist(), names[self._scopes].tolist(), strict=True)
        scopes = ((number, tuple(variable for variable in scope if variable >= 0)) for number, scope in found)
        return tuple((number, scope) for number, scope in scopes if scope)

    def core(self) -> tuple[int, ...]:
        """The variables that are left."""
        return tuple(self.names[self._alive].tolist())

    def compact(self) -> None:
        """Numbers the variables anew if most have gone, so that a round takes as long as there are variables left."""
        left = np.flatnonzero(self._alive)
        if 2 * len(left) > self._count:
            return
        new = np.full(self._count + 1, -1)
        new[left] = np.arange(len(left))
        self._scopes = new[self._scopes]
        self._one, self._other = new[self._one], new[self._other]
        self._near = self._one * len(left) + self._other
        self.names, self._count = self.names[left], len(left)
        self._alive = np.ones(len(left), dtype=bool)

    def independent(self, bits: NDArray[np.float64], kind: Ints, most: _Limits) -> Ints:
        """Variables for a round: no two are neighbours, and their buckets are about the smallest; ascending."""
        size = (bits + np.bincount(self._one, weights=bits[self._other], minlength=self._count)).round(6)
        degree = np.bincount(self._one, minlength=self._count)
        able = self._alive & (size <= most.bits) & (degree <= most.neighbours)
        if not able.any():
            return np.zeros(0, dtype=np.int64)
        able &= size <= max(float(size[able].min()) + ORDER_SLACK_BITS, SMALL_BUCKET_BITS)
        taken = np.zeros(self._count, dtype=bool)
        ones = np.flatnonzero(able)
        self._take(able, taken, ones[np.lexsort((kind[ones], size[ones]))])
        # Where many in a row are equal, each waits for the one before it; what is left is taken in a mixed order.
        ones = np.flatnonzero(able)
        if len(ones):
            self._take(able, taken, ones[np.argsort(ones * HASH_FACTOR % (1 << 32))])
        return np.flatnonzero(taken)

    def _take(self, able: NDArray[np.bool_], taken: NDArray[np.bool_], order: Ints) -> None:
        """Takes able variables that come before all their able neighbours, again and again; both masks change.

        Args:
            able: those that may be taken; neighbours of what is taken may be no more.
            taken: those that are.
            order: the able ones, those to be taken first in front.
        """
        if len(order) == 1:
            taken[order], able[order] = True, False
            return
        rank = np.full(self._count, self._count)
        rank[order] = np.arange(len(order))
        starts = np.flatnonzero(np.diff(self._one, prepend=-1))
        for _ in range(ORDER_PASSES):
            least = np.full(self._count, self._count)
            if len(starts):
                least[self._one[starts]] = np.minimum.reduceat(rank[self._other], starts)
            first = able & (rank < least)
            if not first.any():
                break
            taken |= first
            able &= ~first
            able[self._other[first[self._one]]] = False
            rank[~able] = self._count

    def eliminate(self, taken: Ints) -> list[Steps]:
        """Takes out variables of which no two are neighbours, and puts a factor over each one's neighbours there.

        Args:
            taken: ascending.
        """
        gone = np.zeros(self._count + 1, dtype=bool)
        gone[taken] = True
        self._alive[taken] = False
        here = gone[self._one]
        pairs, neighbours = self._near[here], self._other[here]
        degree = np.bincount(self._one[here], minlength=self._count)[taken]
        start = np.cumsum(degree) - degree
        # The factors of each bucket, together and ascending.
        scopes = self._scopes
        hit = gone[scopes]
        touched = np.asarray(hit.any(axis=1))
        variable = scopes[hit]
        by_variable = np.argsort(variable, kind="stable")
        variable = variable[by_variable]
        factors, scopes = self._factors[touched][by_variable], scopes[touched][by_variable]
        count = np.bincount(variable, minlength=self._count)[taken]
        first = np.cumsum(count) - count
        # Axis 0 is the variable that goes, i the i-th of its neighbours; -1 where a scope has ended.
        place = np.searchsorted(pairs, variable[:, None] * self._count + scopes)
        own = np.repeat(np.arange(len(taken)), count)
        axes = np.where(scopes == variable[:, None], 0, place - start[own][:, None] + 1)
        axes[scopes < 0] = -1
        widest = int(degree.max(initial=0)) + 2
        form_first, form = distinct_rows(axes + 1, widest)
        forms = [tuple([axis for axis in row if axis >= 0]) for row in axes[form_first].tolist()]
        steps: list[Steps] = []
        new: list[Ints] = []
        shapes = degree * (int(count.max(initial=0)) + 1) + count
        for shape in np.unique(shapes).tolist():
            members = np.flatnonzero(shapes == shape)
            depth, width = int(count[members[0]]), int(degree[members[0]])
            bucket = first[members][:, None] + np.arange(depth)
            rest = neighbours[start[members][:, None] + np.arange(width)]
            patterns, group = distinct_rows(form[bucket], max(1, len(forms)))
            for number, representative in enumerate(patterns.tolist()):
                rows = np.flatnonzero(group == number)
                produced = self._made + np.arange(len(rows))
                self._made += len(rows)
                pattern = tuple(forms[one] for one in form[bucket[representative]].tolist())
                variables = self.names[taken[members[rows]]]
                steps.append(Steps(pattern, variables, self.names[rest[rows]], factors[bucket[rows]], produced))
                new.append(rest[rows])
        self._replace(gone, touched, new)
        return steps

    def _replace(self, gone: NDArray[np.bool_], touched: NDArray[np.bool_], new: Sequence[Ints]) -> None:
        """New factors, over these variables, in the place of those that were touched."""
        width = max(self._scopes.shape[1], *(rest.shape[1] for rest in new))
        self._scopes = np.concatenate([_filled_up(rows, width, -1) for rows in (self._scopes[~touched], *new)])
        added = sum(map(len, new))
        self._factors = np.concatenate([self._factors[~touched], np.arange(self._made - added, self._made)])
        near = self._near[~(gone[self._one] | gone[self._other])]
        cliques = [
            (rest[:, :, None] * self._count + rest[:, None, :])[:, ~np.eye(rest.shape[1], dtype=np.bool_)].ravel()
            for rest in new
            if rest.shape[1] > 1
        ]
        if cliques:
            more = np.unique(np.concatenate(cliques))
            if len(near):
                more = more[near[np.minimum(np.searchsorted(near, more), len(near) - 1)] != more]
            # Two sorted runs: a stable sort merges them.
            near = np.sort(np.concatenate([near, more]), kind="stable")
        self._near = near
        self._one, self._other = np.divmod(near, self._count)


def _filled_up(rows: Ints, width: int, value: int) -> Ints:
    """Rows of this width, filled up with a value."""
    found = np.full((len(rows), width), value)
    found[:, : rows.shape[1]] = rows
    return found
