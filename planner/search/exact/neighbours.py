"""Which variables of a sum of factors are neighbours, while they are eliminated one round after the other.

The order of an elimination depends on this alone, and not on tables. Two variables are neighbours if a factor has both;
of an eliminated one all neighbours become each other's, since a factor over all of them takes its place.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.search.effort import HASH_FACTOR, ORDER_PASSES, ORDER_SLACK_BITS, SMALL_BUCKET_BITS
from planner.search.exact.rows import Ints


@dataclass(frozen=True, slots=True)
class Limits:
    """Which variables may be eliminated."""

    bits: float
    """The largest bucket, as a power of two."""
    neighbours: int


def rows_of(scopes: Sequence[tuple[int, ...]]) -> Ints:
    """Row by row the variables of a factor; rows are filled up with -1, which stands for no variable."""
    widest = max(map(len, scopes), default=1)
    rows = np.full((len(scopes), widest), -1)
    lengths = np.array([len(scope) for scope in scopes], dtype=np.int64)
    flat = np.fromiter(itertools.chain.from_iterable(scopes), dtype=np.int64, count=int(lengths.sum()))
    rows[np.arange(widest) < lengths[:, None]] = flat
    return rows


class Neighbours:
    """Variables that are left, and which of them are neighbours.

    Variables have numbers of their own here, which change when many have gone.

    Attributes:
        count: how many numbers there are.
        names: of each variable, by which number it is known outside.
        alive: of each variable, whether it is left.
        pairs: every neighbourhood twice, as variable * count + neighbour, sorted.
        one: of each pair the variable.
        other: of each pair the neighbour.
    """

    def __init__(self, variables: int, rows: Ints) -> None:
        """Begins with all variables.

        Args:
            variables: how many there are.
            rows: the variables of each factor (``rows_of``).
        """
        self.count = variables
        self.names = np.arange(variables)
        self.alive = np.ones(variables, dtype=bool)
        widest = rows.shape[1]
        found = [rows[:, [one, other]] for one in range(widest) for other in range(widest) if one != other]
        both = np.concatenate(found) if found else np.zeros((0, 2), dtype=np.int64)
        both = both[(both >= 0).all(axis=1)]
        self._take_pairs(np.unique(both[:, 0] * variables + both[:, 1]))

    def _take_pairs(self, pairs: Ints) -> None:
        self.pairs: Ints = pairs
        self.one, self.other = np.divmod(pairs, max(1, self.count))

    def compact(self) -> Ints | None:
        """Numbers the variables anew if most have gone, so that a round takes as long as there are variables left.

        Returns:
            By old number the new one, -1 for those that have gone and last for no variable; None if all stay as it was.
        """
        left = np.flatnonzero(self.alive)
        if 2 * len(left) > self.count:
            return None
        new = np.full(self.count + 1, -1)
        new[left] = np.arange(len(left))
        self.one, self.other = new[self.one], new[self.other]
        self.pairs = self.one * len(left) + self.other
        self.names, self.count = self.names[left], len(left)
        self.alive = np.ones(len(left), dtype=bool)
        return new

    def degrees(self) -> Ints:
        """How many neighbours each variable has."""
        return np.bincount(self.one, minlength=self.count)

    def independent(self, bits: NDArray[np.float64], kind: Ints, most: Limits) -> Ints:
        """Variables for a round: no two are neighbours, and their buckets are about the smallest; ascending."""
        size = (bits + np.bincount(self.one, weights=bits[self.other], minlength=self.count)).round(6)
        able = self.alive & (size <= most.bits) & (self.degrees() <= most.neighbours)
        if not able.any():
            return np.zeros(0, dtype=np.int64)
        able &= size <= max(float(size[able].min()) + ORDER_SLACK_BITS, SMALL_BUCKET_BITS)
        taken = np.zeros(self.count, dtype=bool)
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
        rank = np.full(self.count, self.count)
        rank[order] = np.arange(len(order))
        starts = np.flatnonzero(np.diff(self.one, prepend=-1))
        for _ in range(ORDER_PASSES):
            least = np.full(self.count, self.count)
            if len(starts):
                least[self.one[starts]] = np.minimum.reduceat(rank[self.other], starts)
            first = able & (rank < least)
            if not first.any():
                break
            taken |= first
            able &= ~first
            able[self.other[first[self.one]]] = False
            rank[~able] = self.count

    def settle(self, variable: int) -> None:
        """Takes out a variable that is given a value: its neighbours do not become each other's."""
        self.join(np.array([variable]), [])

    def join(self, gone: Ints, cliques: Sequence[Ints]) -> None:
        """Takes out variables, and makes others neighbours.

        Args:
            gone: what goes.
            cliques: rows of variables; those of one row become neighbours.
        """
        self.alive[gone] = False
        near = self.pairs[self.alive[self.one] & self.alive[self.other]]
        new = [
            (rest[:, :, None] * self.count + rest[:, None, :])[:, ~np.eye(rest.shape[1], dtype=np.bool_)].ravel()
            for rest in cliques
            if rest.shape[1] > 1
        ]
        if new:
            more = np.unique(np.concatenate(new))
            if len(near):
                more = more[near[np.minimum(np.searchsorted(near, more), len(near) - 1)] != more]
            # Two sorted runs: a stable sort merges them.
            near = np.sort(np.concatenate([near, more]), kind="stable")
        self._take_pairs(near)
