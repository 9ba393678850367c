"""How many elements workers have in common of two divisions of an index space, over all workers.

Worker by worker, that takes a time in proportion to their number. But which part of a dim a worker has depends on its
groups of a few cuts only, and most dims are divided into equal pieces. Where all cuts have as many ways, equal pieces
of two ways are one within the other or have nothing in common: they meet where the worker is in the same group of the
first cut in both, and of the second, and so on. So along such dims a worker has the smaller piece of both, or nothing;
and it has something if its groups of some cuts are the same, which joins these cuts: of all that are joined, one is
left to choose from. What remains is to go through the groups of the cuts along dims of unequal pieces.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.algebra.ways import Ints, Ways

_MANY = 64
"""Workers from which on groups are looked at, and not each worker."""
_IN_CACHE = 1 << 17
"""Numbers that stay in the cache; more are counted some after the others."""


def elements_in_common(ways: Ways, some: Ints, others: Ints) -> Ints:
    """Elements that workers have in both divisions of each pair, shape [pairs].

    Args:
        ways: that have been numbered.
        some: those of the one division, shape [dims, pairs].
        others: those of the other, of the same shape.
    """
    if ways.workers < _MANY or not ways.is_regular:
        return _by_worker(ways, some, others)
    knows_cuts = (ways.knows_cuts[some] & ways.knows_cuts[others]).all(axis=0)
    found: Ints = np.empty(some.shape[1], dtype=np.int64)
    for which, count in ((knows_cuts, _by_groups), (~knows_cuts, _by_worker)):
        if which.any():
            found[which] = count(ways, some[:, which], others[:, which])
    return found


def _by_worker(ways: Ways, some: Ints, others: Ints) -> Ints:
    """``elements_in_common`` of any divisions."""
    pairs = some.shape[1]
    most = max(1, _IN_CACHE // ways.workers)
    if pairs > most:
        places = range(0, pairs, most)
        return np.concatenate([_by_worker(ways, some[:, at : at + most], others[:, at : at + most]) for at in places])
    is_whole = ways.is_whole[some] & ways.is_whole[others]
    whole: Ints = np.where(is_whole, ways.lengths[some], 1).prod(axis=0)
    total = np.ones((pairs, ways.workers), dtype=np.int64)
    for here, mine, theirs in zip(~is_whole, some, others, strict=True):
        if here.all():
            total *= ways.overlap(mine, theirs)
        elif here.any():
            total[here] *= ways.overlap(mine[here], theirs[here])
    summed: Ints = total.sum(axis=1)
    return summed * whole


def _by_groups(ways: Ways, some: Ints, others: Ints) -> Ints:
    """``elements_in_common`` of divisions that are known by their cuts, all of as many ways."""
    pairs, groups, cuts = some.shape[1], ways.of_cuts[0], np.arange(len(ways.of_cuts))
    smaller = np.minimum(ways.lengths[some], ways.lengths[others])
    elements: Ints = np.maximum(smaller, 1).prod(axis=0)
    unequal = smaller == 0
    joined = np.tile(cuts, (pairs, 1))  # by pair and cut: of those whose groups must be the same one stands for all
    tried = np.zeros((pairs, len(cuts)), dtype=np.bool_)  # by pair, the cuts along dims of unequal pieces
    for mine, theirs, is_unequal in zip(some, others, unequal, strict=True):
        _join(joined, np.flatnonzero(~is_unequal & (mine != theirs)), ways, mine, theirs)
        here = np.flatnonzero(is_unequal)
        for along in (ways.cuts[mine[here]], ways.cuts[theirs[here]]):
            place, depth = np.nonzero(along >= 0)
            tried[here[place], along[place, depth]] = True
    left = (joined == cuts).sum(axis=1)
    found: Ints = np.empty(pairs, dtype=np.int64)
    counts = tried.sum(axis=1)
    for count in np.unique(counts).tolist():
        alike = np.flatnonzero(counts == count)
        most = max(1, _IN_CACHE // groups**count)
        for start in range(0, len(alike), most):
            part = alike[start : start + most]
            along = np.nonzero(tried[part])[1].reshape(len(part), count)
            total, decided = _tried(ways, some[:, part], others[:, part], unequal[:, part], joined[part], along)
            found[part] = total * groups ** (left[part] - decided)
    return found * elements


def _join(joined: Ints, pairs: Ints, ways: Ways, mine: Ints, theirs: Ints) -> None:
    """Joins the cuts along a dim of equal pieces: the first of both, the second of both, and so on; in place."""
    for one, other in zip(ways.cuts[mine[pairs]].T, ways.cuts[theirs[pairs]].T, strict=True):
        apart = np.flatnonzero((one != other) & (one >= 0) & (other >= 0))
        if len(apart):
            rows = joined[pairs[apart]]
            each = np.arange(len(apart))
            first, second = rows[each, one[apart]], rows[each, other[apart]]
            joined[pairs[apart]] = np.where(rows == second[:, None], first[:, None], rows)


def _tried(
    ways: Ways, some: Ints, others: Ints, unequal: NDArray[np.bool_], joined: Ints, along: Ints
) -> tuple[Ints, Ints]:
    """What workers have in common along dims of unequal pieces, and how many choices that settles, shape [pairs].

    Args:
        ways: that have been numbered.
        some: those of the one division, shape [dims, pairs].
        others: those of the other.
        unequal: along which dims, shape [dims, pairs].
        joined: which cut each one is joined to, shape [pairs, all cuts].
        along: the cuts along such dims, shape [pairs, cuts].
    """
    groups, count = ways.of_cuts[0], along.shape[1]
    grid = np.indices((groups,) * count).reshape(count, groups**count)
    total: Ints = np.ones((len(along), grid.shape[1]), dtype=np.int64)
    for mine, theirs, which in zip(some, others, unequal, strict=True):
        here = np.flatnonzero(which)
        if len(here):
            total[here] *= ways.overlap_at(mine[here], theirs[here], along[here], grid)
    same = np.take_along_axis(joined, along, axis=1)
    decided: Ints = np.full(len(along), count, dtype=np.int64)
    for later in range(1, count):
        is_joined = same[:, :later] == same[:, later : later + 1]
        for earlier in np.flatnonzero(is_joined.any(axis=0)).tolist():
            total[np.ix_(is_joined[:, earlier], grid[earlier] != grid[later])] = 0
        decided -= is_joined.any(axis=1)
    return total.sum(axis=1), decided
