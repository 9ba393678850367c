"""Elements that workers have in common in two divisions of an index space, over all workers.

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


def elements_in_common(ways: Ways, firsts: Ints, seconds: Ints) -> Ints:
    """Elements that workers have in both divisions of each pair, shape [pairs].

    Args:
        ways: that have been numbered.
        firsts: the ways of each pair's first division, shape [dims, pairs].
        seconds: those of the second, of the same shape.
    """
    if ways.workers < _MANY or not ways.is_regular:
        return _by_worker(ways, firsts, seconds)
    knows_cuts = (ways.knows_cuts[firsts] & ways.knows_cuts[seconds]).all(axis=0)
    common: Ints = np.empty(firsts.shape[1], dtype=np.int64)
    for mask, count in ((knows_cuts, _by_groups), (~knows_cuts, _by_worker)):
        if mask.any():
            common[mask] = count(ways, firsts[:, mask], seconds[:, mask])
    return common


def _by_worker(ways: Ways, firsts: Ints, seconds: Ints) -> Ints:
    """``elements_in_common`` of any divisions."""
    pairs = firsts.shape[1]
    cap = max(1, _IN_CACHE // ways.workers)
    if pairs > cap:
        places = range(0, pairs, cap)
        return np.concatenate([_by_worker(ways, firsts[:, at : at + cap], seconds[:, at : at + cap]) for at in places])
    is_whole = ways.is_whole[firsts] & ways.is_whole[seconds]
    whole_elements: Ints = np.where(is_whole, ways.lengths[firsts], 1).prod(axis=0)
    total = np.ones((pairs, ways.workers), dtype=np.int64)
    for mask, mine, theirs in zip(~is_whole, firsts, seconds, strict=True):
        if mask.all():
            total *= ways.overlap(mine, theirs)
        elif mask.any():
            total[mask] *= ways.overlap(mine[mask], theirs[mask])
    summed: Ints = total.sum(axis=1)
    return summed * whole_elements


def _by_groups(ways: Ways, firsts: Ints, seconds: Ints) -> Ints:
    """``elements_in_common`` of divisions that are known by their cuts, all of as many ways."""
    pairs, groups, cuts = firsts.shape[1], ways.of_cuts[0], np.arange(len(ways.of_cuts))
    smaller = np.minimum(ways.lengths[firsts], ways.lengths[seconds])
    elements: Ints = np.maximum(smaller, 1).prod(axis=0)
    unequal = smaller == 0
    joined = np.tile(cuts, (pairs, 1))  # by pair and cut: of those whose groups must be the same one stands for all
    tried = np.zeros((pairs, len(cuts)), dtype=np.bool_)  # by pair, the cuts along dims of unequal pieces
    for mine, theirs, is_unequal in zip(firsts, seconds, unequal, strict=True):
        _join(joined, np.flatnonzero(~is_unequal & (mine != theirs)), ways, mine, theirs)
        uneven_pairs = np.flatnonzero(is_unequal)
        for along in (ways.cuts[mine[uneven_pairs]], ways.cuts[theirs[uneven_pairs]]):
            place, depth = np.nonzero(along >= 0)
            tried[uneven_pairs[place], along[place, depth]] = True
    free_cuts = (joined == cuts).sum(axis=1)
    common: Ints = np.empty(pairs, dtype=np.int64)
    counts = tried.sum(axis=1)
    for count in np.unique(counts).tolist():
        alike = np.flatnonzero(counts == count)
        cap = max(1, _IN_CACHE // groups**count)
        for start in range(0, len(alike), cap):
            part = alike[start : start + cap]
            along = np.nonzero(tried[part])[1].reshape(len(part), count)
            total, decided = _tried(ways, firsts[:, part], seconds[:, part], unequal[:, part], joined[part], along)
            common[part] = total * groups ** (free_cuts[part] - decided)
    return common * elements


def _join(joined: Ints, pairs: Ints, ways: Ways, mine: Ints, theirs: Ints) -> None:
    """Joins the cuts along a dim of equal pieces: the first of both, the second of both, and so on; in place."""
    for first_cut, second_cut in zip(ways.cuts[mine[pairs]].T, ways.cuts[theirs[pairs]].T, strict=True):
        apart = np.flatnonzero((first_cut != second_cut) & (first_cut >= 0) & (second_cut >= 0))
        if len(apart):
            rows = joined[pairs[apart]]
            positions = np.arange(len(apart))
            first, second = rows[positions, first_cut[apart]], rows[positions, second_cut[apart]]
            joined[pairs[apart]] = np.where(rows == second[:, None], first[:, None], rows)


def _tried(
    ways: Ways, firsts: Ints, seconds: Ints, unequal: NDArray[np.bool_], joined: Ints, along: Ints
) -> tuple[Ints, Ints]:
    """The common elements of workers along dims of unequal pieces, and the number of choices that settles, shape
    [pairs].

    Args:
        ways: that have been numbered.
        firsts: the ways of each pair's first division, shape [dims, pairs].
        seconds: those of the second, of the same shape.
        unequal: along which dims, shape [dims, pairs].
        joined: which cut each one is joined to, shape [pairs, all cuts].
        along: the cuts along such dims, shape [pairs, cuts].
    """
    groups, count = ways.of_cuts[0], along.shape[1]
    grid = np.indices((groups,) * count).reshape(count, groups**count)
    total: Ints = np.ones((len(along), grid.shape[1]), dtype=np.int64)
    for mine, theirs, is_unequal in zip(firsts, seconds, unequal, strict=True):
        uneven_pairs = np.flatnonzero(is_unequal)
        if len(uneven_pairs):
            total[uneven_pairs] *= ways.overlap_at(mine[uneven_pairs], theirs[uneven_pairs], along[uneven_pairs], grid)
    roots = np.take_along_axis(joined, along, axis=1)
    decided: Ints = np.full(len(along), count, dtype=np.int64)
    for later in range(1, count):
        is_joined = roots[:, :later] == roots[:, later : later + 1]
        for earlier in np.flatnonzero(is_joined.any(axis=0)).tolist():
            total[np.ix_(is_joined[:, earlier], grid[earlier] != grid[later])] = 0
        decided -= is_joined.any(axis=1)
    return total.sum(axis=1), decided
