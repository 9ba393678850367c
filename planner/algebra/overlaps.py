"""How many elements workers have in common of two divisions of an index space, over all workers.

Worker by worker, that takes a time in proportion to their number. But which part of a dim a worker has depends on its
groups of a few cuts only, and most dims are divided into equal pieces. Where all cuts have as many ways, equal pieces
of two ways are one within the other or have nothing in common: they meet where the worker is in the same group of the
first cut in both, and of the second, and so on. So along such dims a worker has the smaller piece of both, or nothing;
and it has something if its groups of some cuts are the same, which joins these cuts: of all that are joined, one is
left to choose from. What remains is to go through the groups of the cuts along dims of unequal pieces.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from planner.algebra.ways import Dim, Ints

_MANY = 32
"""Workers from which on groups are looked at, and not each worker."""
_IN_CACHE = 1 << 17
"""Numbers that stay in the cache; more are counted some after the others."""


def elements_in_common(dims: Sequence[Dim], some: Ints, others: Ints) -> Ints:
    """Elements that workers have in both divisions of each pair, shape [pairs].

    Args:
        dims: of the index space.
        some: the ways of the one, shape [dims, pairs].
        others: the ways of the other, of the same shape.
    """
    if dims[0].workers < _MANY or not dims[0].is_regular:
        return _by_worker(dims, some, others)
    knows_cuts = np.ones(some.shape[1], dtype=np.bool_)
    for dim, mine, theirs in zip(dims, some, others, strict=True):
        knows_cuts &= dim.knows_cuts[mine] & dim.knows_cuts[theirs]
    found: Ints = np.empty(some.shape[1], dtype=np.int64)
    for which, count in ((knows_cuts, _by_groups), (~knows_cuts, _by_worker)):
        if which.any():
            found[which] = count(dims, some[:, which], others[:, which])
    return found


def _by_worker(dims: Sequence[Dim], some: Ints, others: Ints) -> Ints:
    """``elements_in_common`` of any divisions."""
    workers, pairs = dims[0].workers, some.shape[1]
    most = max(1, _IN_CACHE // workers)
    if pairs > most:
        places = range(0, pairs, most)
        return np.concatenate([_by_worker(dims, some[:, at : at + most], others[:, at : at + most]) for at in places])
    whole = np.ones(pairs, dtype=np.int64)
    total = np.ones((pairs, workers), dtype=np.int64)
    for dim, mine, theirs in zip(dims, some, others, strict=True):
        is_cut = (mine | theirs) > 0
        cut = np.flatnonzero(is_cut)
        if len(cut) == pairs:
            total *= dim.overlap(mine, theirs)
        elif len(cut):
            total[cut] *= dim.overlap(mine[cut], theirs[cut])
        whole *= np.where(is_cut, 1, dim.extent)
    summed: Ints = total.sum(axis=1)
    return summed * whole


def _by_groups(dims: Sequence[Dim], some: Ints, others: Ints) -> Ints:
    """``elements_in_common`` of divisions that are known by their cuts, all of as many ways."""
    pairs, cuts = some.shape[1], np.arange(len(dims[0].ways))
    elements = np.ones(pairs, dtype=np.int64)
    joined = np.tile(cuts, (pairs, 1))
    """Of the cuts whose groups must be the same one stands for all."""
    tried = np.zeros((pairs, len(cuts)), dtype=np.bool_)
    """The cuts along dims of unequal pieces."""
    unequal = np.zeros((len(dims), pairs), dtype=np.bool_)
    for number, (dim, mine, theirs) in enumerate(zip(dims, some, others, strict=True)):
        smaller = np.minimum(dim.pieces[mine], dim.pieces[theirs])
        unequal[number] = smaller == 0
        elements *= np.maximum(smaller, 1)
        _join(joined, np.flatnonzero((smaller > 0) & (mine != theirs)), dim, mine, theirs)
        here = np.flatnonzero(smaller == 0)
        for along in (dim.cuts[mine[here]], dim.cuts[theirs[here]]):
            place, depth = np.nonzero(along >= 0)
            tried[here[place], along[place, depth]] = True
    left = (joined == cuts).sum(axis=1)
    found: Ints = np.empty(pairs, dtype=np.int64)
    counts = tried.sum(axis=1)
    for count in np.unique(counts).tolist():
        alike = np.flatnonzero(counts == count)
        most = max(1, _IN_CACHE // dims[0].ways[0] ** count)
        for start in range(0, len(alike), most):
            part = alike[start : start + most]
            along = np.nonzero(tried[part])[1].reshape(len(part), count)
            total, decided = _tried(dims, some[:, part], others[:, part], unequal[:, part], joined[part], along)
            found[part] = total * dims[0].ways[0] ** (left[part] - decided)
    return found * elements


def _join(joined: Ints, pairs: Ints, dim: Dim, mine: Ints, theirs: Ints) -> None:
    """Joins the cuts along a dim of equal pieces: the first of both, the second of both, and so on; in place."""
    for one, other in zip(dim.cuts[mine[pairs]].T, dim.cuts[theirs[pairs]].T, strict=True):
        apart = np.flatnonzero((one != other) & (one >= 0) & (other >= 0))
        if len(apart):
            rows = joined[pairs[apart]]
            each = np.arange(len(apart))
            first, second = rows[each, one[apart]], rows[each, other[apart]]
            joined[pairs[apart]] = np.where(rows == second[:, None], first[:, None], rows)


def _tried(
    dims: Sequence[Dim], some: Ints, others: Ints, unequal: NDArray[np.bool_], joined: Ints, along: Ints
) -> tuple[Ints, Ints]:
    """What workers have in common along dims of unequal pieces, and how many choices that settles, shape [pairs].

    Args:
        dims: of the index space.
        some: the ways of the one, shape [dims, pairs].
        others: the ways of the other.
        unequal: along which dims; of the same shape.
        joined: by pair and cut, which one it is joined to.
        along: the cuts along such dims, shape [pairs, cuts].
    """
    ways, count = dims[0].ways[0], along.shape[1]
    grid = np.indices((ways,) * count).reshape(count, ways**count)
    workers = ways ** (len(dims[0].ways) - 1 - along) @ grid
    total: Ints = np.ones((len(along), grid.shape[1]), dtype=np.int64)
    for dim, mine, theirs, which in zip(dims, some, others, unequal, strict=True):
        here = np.flatnonzero(which)
        if len(here):
            total[here] *= dim.overlap_at(mine[here], theirs[here], workers[here])
    groups = np.take_along_axis(joined, along, axis=1)
    decided: Ints = np.full(len(along), count, dtype=np.int64)
    for later in range(1, count):
        is_joined = groups[:, :later] == groups[:, later : later + 1]
        for earlier in np.flatnonzero(is_joined.any(axis=0)).tolist():
            total[np.ix_(is_joined[:, earlier], grid[earlier] != grid[later])] = 0
        decided -= is_joined.any(axis=1)
    return total.sum(axis=1), decided
