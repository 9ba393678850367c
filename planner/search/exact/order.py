"""An order of variable elimination, found once for a graph and used for all its tables.

Finding the order takes longer than carrying it out, since a training graph is the same few layers again and again: the
order is found once, and every sum of tables over the same scopes follows it. Variables are eliminated in rounds. In a
round no two are neighbours, those with the smallest buckets come first, and equal ones in the order of their kinds, so
that repeated layers are contracted in the same way in the same round; a chain of L equal layers takes about log L
rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, log2
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.search.exact.neighbours import Limits, Neighbours, rows_of
from planner.search.exact.rows import Ints, distinct_rows

Pattern: TypeAlias = tuple[tuple[int, ...], ...]
"""The axes of the table of each factor of a bucket: 0 is the variable that goes, i the i-th of those that remain."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Eliminations of one round whose buckets look alike: m variables, f factors and r neighbours each."""

    pattern: Pattern
    variables: Ints
    """Shape [m]."""
    neighbours: Ints
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
    """The number of each variable's bucket among the patterns; shape [m]."""
    variables: Ints
    """Shape [m]."""
    neighbours: Ints
    """The neighbours; rows are filled up with variable 0. Shape [m, most neighbours]."""
    factors: Ints
    """The factors of each bucket; rows are filled up with -1. Shape [m, most factors]."""
    produced: Ints
    """The factor that each elimination makes; shape [m]."""

    @classmethod
    def of(cls, together: Sequence[Steps]) -> Batch:
        """Makes a batch of several steps."""
        numbers: dict[Pattern, int] = {}
        number = [numbers.setdefault(steps.pattern, len(numbers)) for steps in together]
        most_neighbours = max(steps.neighbours.shape[1] for steps in together)
        widest = max(steps.factors.shape[1] for steps in together)
        return cls(
            tuple(numbers),
            np.repeat(number, [len(steps.variables) for steps in together]),
            np.concatenate([steps.variables for steps in together]),
            np.concatenate([_filled_up(steps.neighbours, most_neighbours, 0) for steps in together]),
            np.concatenate([_filled_up(steps.factors, widest, -1) for steps in together]),
            np.concatenate([steps.produced for steps in together]),
        )


@dataclass(frozen=True)
class Order:
    """The order in which to eliminate all variables of a sum of factors."""

    variables: int
    scopes: int
    """The number of factors to begin with; numbers from there on are factors that eliminations make."""
    rounds: tuple[Steps, ...]
    core: tuple[int, ...] = ()
    """Variables that are left, where the order ends before all are eliminated."""
    open: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Factors that are left, and their variables, all of the core."""

    @cached_property
    def batches(self) -> tuple[Batch, ...]:
        """The eliminations, as many together as there can be without another order."""
        together: list[list[Steps]] = []
        first = 0
        for steps in self.rounds:
            produced = int(steps.produced.min())
            if not together or steps.factors.max(initial=-1) >= first:
                together.append([])
                first = produced
            together[-1].append(steps)
            first = min(first, produced)
        return tuple(map(Batch.of, together))

    def largest_bucket(self, sizes: NDArray[np.int64]) -> float:
        """Entries of the largest bucket, when the variables have so many values each."""
        bits = np.log2(sizes.astype(np.float64))
        powers = (float((bits[steps.variables] + bits[steps.neighbours].sum(axis=1)).max()) for steps in self.rounds)
        largest = max(powers, default=0.0)
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
    residual = _Residual(len(sizes), scopes)
    bits = np.log2(np.maximum(1, np.array(sizes, dtype=np.float64)))
    limits = Limits(log2(most_entries), len(sizes) if most_neighbours is None else most_neighbours)
    kind = np.array(kinds, dtype=np.int64)
    rounds: list[Steps] = []
    while (independent := residual.near.independent(bits[residual.near.names], kind[residual.near.names], limits)).size:
        rounds.extend(residual.eliminate(independent))
        residual.compact()
    return Order(len(sizes), len(scopes), tuple(rounds), residual.core(), residual.open())


class Settled(NamedTuple):
    """Variables that have to stay what they are, and how to eliminate all others then."""

    staying: frozenset[int]
    order: Order
    """The order over scopes without those that stay, which are its core."""


def find_order_settling(
    sizes: Sequence[int],
    scopes: Sequence[tuple[int, ...]],
    kinds: Sequence[int],
    stayed: Sequence[int],
    most_entries: float,
) -> Settled:
    """Finds variables without which all others can be eliminated, in one pass.

    Where no variable is left whose bucket is small enough, one is given a value and the elimination goes on: of those
    that were given one least often, the one that makes all buckets of its neighbours smaller by the most. The same
    rounds, less these variables, are the order: no bucket is larger than it was with them.

    Args:
        sizes: how many values each variable has; one with one value is in no scope.
        scopes: the variables of each factor; none twice in one.
        kinds: equal for variables of repeated layers.
        stayed: how often each variable had to stay before.
        most_entries: of a bucket.
    """
    residual = _Residual(len(sizes), scopes)
    bits = np.log2(np.maximum(1, np.array(sizes, dtype=np.float64)))
    kind, before = np.array(kinds, dtype=np.int64), np.array(stayed, dtype=np.int64)
    limits = Limits(log2(most_entries), len(sizes))
    rounds: list[Steps] = []
    settled = np.zeros(len(sizes), dtype=np.bool_)
    while (near := residual.near).alive.any():
        names = near.names
        if (independent := near.independent(bits[names], kind[names], limits)).size:
            rounds.extend(residual.eliminate(independent))
        else:
            least_often = near.alive & (before[names] == before[names][near.alive].min())
            chosen = int(np.where(least_often, bits[names] * near.degrees(), -1.0).argmax())
            settled[names[chosen]] = True
            residual.settle(chosen)
        residual.compact()
    staying = tuple(np.flatnonzero(settled).tolist())
    done = [part for steps in rounds for part in _without(steps, settled)]
    return Settled(frozenset(staying), Order(len(sizes), len(scopes), tuple(done), staying))


def _without(steps: Steps, settled: NDArray[np.bool_]) -> Iterator[Steps]:
    """The eliminations, by what is alike once some variables, settled only later, are over no table."""
    gone = settled[steps.neighbours]
    if not gone.any():
        yield steps
        return
    different, group = distinct_rows(gone.astype(np.int64), 2)
    for number, example in enumerate(different.tolist()):
        rows, columns = np.flatnonzero(group == number), np.flatnonzero(~gone[example])
        axis = {0: 0, **{old + 1: place for place, old in enumerate(columns.tolist(), start=1)}}
        pattern = tuple(tuple([axis[old] for old in axes if old in axis]) for axes in steps.pattern)
        neighbours = steps.neighbours[rows][:, columns]
        yield Steps(pattern, steps.variables[rows], neighbours, steps.factors[rows], steps.produced[rows])


def order_of(sequence: Sequence[int], variables: int, scopes: Sequence[tuple[int, ...]]) -> Order:
    """The order that eliminates variables one by one in a given sequence.

    Args:
        sequence: every variable that is in a scope, once.
        variables: how many there are.
        scopes: the variables of each factor; none twice in one.
    """
    residual = _Residual(variables, scopes)
    rounds = [steps for variable in sequence for steps in residual.eliminate(np.array([variable]))]
    return Order(variables, len(scopes), tuple(rounds))


class _Residual:
    """The rest of a sum: factors, and which variables are neighbours.

    Attributes:
        near: the variables.
    """

    def __init__(self, variables: int, scopes: Sequence[tuple[int, ...]]) -> None:
        self._factors = np.arange(len(scopes))
        self._scopes = rows_of(scopes)
        self._count = len(scopes)
        self.near = Neighbours(variables, self._scopes)

    def open(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """The factors that are left, with their variables."""
        names = np.append(self.near.names, -1)
        factors = zip(self._factors.tolist(), names[self._scopes].tolist(), strict=True)
        scopes = ((number, tuple(variable for variable in scope if variable >= 0)) for number, scope in factors)
        return tuple((number, scope) for number, scope in scopes if scope)

    def core(self) -> tuple[int, ...]:
        """The variables that are left."""
        return tuple(self.near.names[self.near.alive].tolist())

    def compact(self) -> None:
        """Numbers the variables anew if most have gone."""
        numbers = self.near.compact()
        if numbers is not None:
            self._scopes = numbers[self._scopes]

    def settle(self, variable: int) -> None:
        """Takes out a variable that is given a value: no factor is over it any more."""
        self._scopes[self._scopes == variable] = -1
        self.near.settle(variable)

    def eliminate(self, independent: Ints) -> list[Steps]:
        """Takes out variables of which no two are neighbours, and puts a factor over each one's neighbours there.

        Args:
            independent: ascending.
        """
        near = self.near
        gone = np.zeros(near.count + 1, dtype=bool)
        gone[independent] = True
        mask = gone[near.variable]
        pairs, neighbours = near.pairs[mask], near.neighbour[mask]
        degree = near.degrees()[independent]
        start = np.cumsum(degree) - degree
        # The factors of each bucket, together and ascending.
        scopes = self._scopes
        hit = gone[scopes]
        touched = np.asarray(hit.any(axis=1))
        variable = scopes[hit]
        by_variable = np.argsort(variable, kind="stable")
        variable = variable[by_variable]
        factors, scopes = self._factors[touched][by_variable], scopes[touched][by_variable]
        count = np.bincount(variable, minlength=near.count)[independent]
        first = np.cumsum(count) - count
        # Axis 0 is the variable that goes, i the i-th of its neighbours; -1 where a scope has ended.
        place = np.searchsorted(pairs, variable[:, None] * near.count + scopes)
        bucket_of = np.repeat(np.arange(len(independent)), count)
        axes = np.where(scopes == variable[:, None], 0, place - start[bucket_of][:, None] + 1)
        axes[scopes < 0] = -1
        widest = int(degree.max(initial=0)) + 2
        form_first, form = distinct_rows(axes + 1, widest)
        forms = [tuple([axis for axis in row if axis >= 0]) for row in axes[form_first].tolist()]
        steps: list[Steps] = []
        cliques: list[Ints] = []
        shapes = degree * (int(count.max(initial=0)) + 1) + count
        for shape in np.unique(shapes).tolist():
            members = np.flatnonzero(shapes == shape)
            depth, width = int(count[members[0]]), int(degree[members[0]])
            bucket = first[members][:, None] + np.arange(depth)
            clique = neighbours[start[members][:, None] + np.arange(width)]
            patterns, group = distinct_rows(form[bucket], max(1, len(forms)))
            for number, representative in enumerate(patterns.tolist()):
                rows = np.flatnonzero(group == number)
                produced = self._count + np.arange(len(rows))
                self._count += len(rows)
                pattern = tuple(forms[form_number] for form_number in form[bucket[representative]].tolist())
                variables = near.names[independent[members[rows]]]
                steps.append(Steps(pattern, variables, near.names[clique[rows]], factors[bucket[rows]], produced))
                cliques.append(clique[rows])
        width = max(self._scopes.shape[1], *(clique.shape[1] for clique in cliques))
        self._scopes = np.concatenate([_filled_up(rows, width, -1) for rows in (self._scopes[~touched], *cliques)])
        added = sum(map(len, cliques))
        self._factors = np.concatenate([self._factors[~touched], np.arange(self._count - added, self._count)])
        near.join(independent, cliques)
        return steps


def _filled_up(rows: Ints, width: int, value: int) -> Ints:
    """Rows of this width, filled up with a value."""
    filled = np.full((len(rows), width), value)
    filled[:, : rows.shape[1]] = rows
    return filled
