"""Neighbours among the variables of a sum of factors, while they are eliminated one round after the other.

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
    """The limits on variables that may be eliminated."""

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
        variable: of each pair the variable.
        neighbour: of each pair the neighbour.
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
        columns = [rows[:, [first, second]] for first in range(widest) for second in range(widest) if first != second]
        pairs = np.concatenate(columns) if columns else np.zeros((0, 2), dtype=np.int64)
        pairs = pairs[(pairs >= 0).all(axis=1)]
        self._take_pairs(np.unique(pairs[:, 0] * variables + pairs[:, 1]))

    def _take_pairs(self, pairs: Ints) -> None:
        self.pairs: Ints = pairs
        self.variable, self.neighbour = np.divmod(pairs, max(1, self.count))

    def compact(self) -> Ints | None:
        """Numbers the variables anew if most have gone, so that a round takes as long as there are variables left.

        Returns:
            By old number the new one, -1 for those that have gone and last for no variable; None if all stay as it was.
        """
        survivors = np.flatnonzero(self.alive)
        if 2 * len(survivors) > self.count:
            return None
        numbers = np.full(self.count + 1, -1)
        numbers[survivors] = np.arange(len(survivors))
        self.variable, self.neighbour = numbers[self.variable], numbers[self.neighbour]
        self.pairs = self.variable * len(survivors) + self.neighbour
        self.names, self.count = self.names[survivors], len(survivors)
        self.alive = np.ones(len(survivors), dtype=bool)
        return numbers

    def degrees(self) -> Ints:
        """The number of neighbours of each variable."""
        return np.bincount(self.variable, minlength=self.count)

    def independent(self, bits: NDArray[np.float64], kind: Ints, limits: Limits) -> Ints:
        """Variables for a round: no two are neighbours, and their buckets are about the smallest; ascending."""
        size = (bits + np.bincount(self.variable, weights=bits[self.neighbour], minlength=self.count)).round(6)
        able = self.alive & (size <= limits.bits) & (self.degrees() <= limits.neighbours)
        if not able.any():
            return np.zeros(0, dtype=np.int64)
        able &= size <= max(float(size[able].min()) + ORDER_SLACK_BITS, SMALL_BUCKET_BITS)
        chosen = np.zeros(self.count, dtype=bool)
        candidates = np.flatnonzero(able)
        self._take(able, chosen, candidates[np.lexsort((kind[candidates], size[candidates]))])
        # Where many in a row are equal, each waits for the one before it; what is left is taken in a mixed order.
        candidates = np.flatnonzero(able)
        if len(candidates):
            self._take(able, chosen, candidates[np.argsort(candidates * HASH_FACTOR % (1 << 32))])
        return np.flatnonzero(chosen)

    def _take(self, able: NDArray[np.bool_], chosen: NDArray[np.bool_], order: Ints) -> None:
        """Takes able variables that come before all their able neighbours, again and again; both masks change.

        Args:
            able: those that may be taken; neighbours of what is taken may be no more.
            chosen: those that are taken.
            order: the able ones, those to be taken first in front.
        """
        if len(order) == 1:
            chosen[order], able[order] = True, False
            return
        rank = np.full(self.count, self.count)
        rank[order] = np.arange(len(order))
        starts = np.flatnonzero(np.diff(self.variable, prepend=-1))
        for _ in range(ORDER_PASSES):
            least = np.full(self.count, self.count)
            if len(starts):
                least[self.variable[starts]] = np.minimum.reduceat(rank[self.neighbour], starts)
            first = able & (rank < least)
            if not first.any():
                break
            chosen |= first
            able &= ~first
            able[self.neighbour[first[self.variable]]] = False
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
        near = self.pairs[self.alive[self.variable] & self.alive[self.neighbour]]
        edges = [
            (clique[:, :, None] * self.count + clique[:, None, :])[:, ~np.eye(clique.shape[1], dtype=np.bool_)].ravel()
            for clique in cliques
            if clique.shape[1] > 1
        ]
        if edges:
            added = np.unique(np.concatenate(edges))
            if len(near):
                added = added[near[np.minimum(np.searchsorted(near, added), len(near) - 1)] != added]
            # Two sorted runs: a stable sort merges them.
            near = np.sort(np.concatenate([near, added]), kind="stable")
        self._take_pairs(near)
