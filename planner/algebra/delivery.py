"""What moves when a tensor is brought from where it is to where it is needed.

Bytes are what crosses from one worker to another, summed over all workers. For a worker and a needed region:
the region less what the worker has already. A reduced region costs its size once for each *other* contributor.
Per group of g workers this gives (g-1)*S for an all-gather or a reduce-scatter and 2*(g-1)*S for an all-reduce;
SoyBean's example (section 2.2) counts g where this counts g-1.

The tables of the search and the partitioner both stand on this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from planner.algebra.region import Boxes, BoxStack
from planner.algebra.tiling import (
    Only,
    Partial,
    Placement,
    Reducer,
    Replicate,
    Shard,
    Tiling,
    coordinates,
    split_bounds,
)


def missing_elements(needed: Boxes, owned: Boxes) -> int:
    """Elements that workers need and do not own, over all workers."""
    return int((needed.elements - needed.overlap(owned)).sum())


def contributors(made: Tiling) -> NDArray[np.bool_]:
    """Which workers' partial results a worker reduces, shape [workers, workers].

    Workers that hold the same part again (a replicated cut) serve their own group only.
    """
    groups = coordinates(made.ways)
    repeated = [cut for cut, placement in enumerate(made.placements) if isinstance(placement, Replicate)]
    same: NDArray[np.bool_] = (groups[:, None, repeated] == groups[None, :, repeated]).all(axis=2)
    return same


def reducer_of(made: Tiling) -> Reducer | None:
    """The reducer of a partial result; None if the tiling has none.

    An op's cuts along reduction variables all have the reducer of its outermost operation.
    """
    for placement in made.placements:
        if isinstance(placement, Partial):
            return placement.reducer
    return None


def reduced_boxes(made: Tiling, owned: Tiling, shape: tuple[int, ...]) -> Boxes:
    """Where partial results are reduced on their way into ``owned``: a tiling X that spreads the work.

    P -> R is always P -> X -> R. The rule: a worker reduces its own tile; where several workers own the same
    tile and hold partial results of it, they share the tile out among them, cut by cut along its longest dim.
    A tile with too few elements goes to the first of them.
    """
    base, cuts = _reduction(made, owned)
    return _shared_out(base, cuts, shape)


@lru_cache(maxsize=262144)
def _reduction(made: Tiling, owned: Tiling) -> tuple[Tiling, tuple[int, ...]]:
    """The tiles in which partial results are reduced, and the cuts whose groups share each tile out among them."""
    base: list[Shard | Only | Replicate] = []
    shared: list[int] = []
    for cut, (source, target) in enumerate(zip(made.placements, owned.placements, strict=True)):
        if isinstance(target, Shard | Only):
            base.append(target)
        elif isinstance(source, Shard | Only):
            base.append(source)
        else:
            base.append(Replicate())
            if isinstance(source, Partial):
                shared.append(cut)
    return Tiling(tuple(base), made.ways), tuple(shared)


@lru_cache(maxsize=65536)
def _shared_out(base: Tiling, cuts: tuple[int, ...], shape: tuple[int, ...]) -> Boxes:
    """The tiles of ``base``, each shared out among the groups of these cuts along its longest dim."""
    boxes = base.boxes(shape)
    lo, hi = boxes.lo.copy(), boxes.hi.copy()
    groups = coordinates(base.ways)
    for cut in cuts:
        ways = base.ways[cut]
        shortest = (hi - lo).min(axis=0)
        dim = int(shortest.argmax())
        if shortest[dim] >= ways:
            lo[:, dim], hi[:, dim] = split_bounds(lo[:, dim], hi[:, dim], ways, groups[:, cut], 1)
        else:
            idle = groups[:, cut] != 0
            hi[idle, 0] = lo[idle, 0]
    lo.flags.writeable = hi.flags.writeable = False
    return Boxes(lo, hi)


def redistribution_elements(made: Tiling, owned: Tiling, shape: tuple[int, ...]) -> int:
    """Elements that move to bring a tensor from how an op makes it into the tiling that owns it."""
    target = owned.boxes(shape)
    source = made.boxes(shape)
    if not made.has_partial:
        return missing_elements(target, source)
    middle = reduced_boxes(made, owned, shape)
    arriving = (middle.cross_overlap(source) * contributors(made)).sum(axis=1)
    here = middle.overlap(source)
    return int((arriving - here).sum()) + missing_elements(target, middle)


def redistribution_table(made: Sequence[Tiling], owned: Sequence[Tiling], shape: tuple[int, ...]) -> NDArray[np.int64]:
    """``redistribution_elements`` of every pair, shape [owned, made].

    What arrives at the workers that reduce needs no look at who sends it: the tiles of the cuts that shard a partial
    result make up the whole of it, so a region is met by as many contributions as the partial cuts have groups.
    """
    target = BoxStack.of([tiling.boxes(shape) for tiling in owned])
    source = BoxStack.of([tiling.boxes(shape) for tiling in made])
    table: NDArray[np.int64] = target.elements[:, None] - target.overlaps(source)
    partial = [number for number, tiling in enumerate(made) if tiling.has_partial]
    if not partial:
        return table
    numbers: dict[tuple[Tiling, tuple[int, ...]], int] = {}
    where = np.array(
        [[numbers.setdefault(_reduction(made[number], goal), len(numbers)) for number in partial] for goal in owned]
    )
    middle = BoxStack.of([_shared_out(base, cuts, shape) for base, cuts in numbers])
    groups = np.array([_partial_groups(made[number]) for number in partial], dtype=np.int64)
    arriving = middle.elements[:, None] * groups[None] - middle.overlaps(source.take(partial))
    kept = target.overlaps(middle)
    goals, columns = np.arange(len(owned))[:, None], np.arange(len(partial))[None]
    table[:, partial] = arriving[where, columns] + target.elements[:, None] - kept[goals, where]
    return table


def _partial_groups(made: Tiling) -> int:
    """How many partial results of each element there are, in workers that do not repeat one another's work."""
    return prod(
        ways for placement, ways in zip(made.placements, made.ways, strict=True) if isinstance(placement, Partial)
    )


def can_split(boxes: Boxes, dim: int, ways: int, block: int = 1) -> bool:
    """True if every worker's region has at least ``ways`` blocks along the dim."""
    extents = boxes.hi[:, dim] - boxes.lo[:, dim]
    return bool((-(-extents // block)).min() >= ways)


def made_tiling(strategy: Tiling, dims: tuple[int, ...], reducers: tuple[Reducer | None, ...]) -> Tiling:
    """The tiling in which an op makes an output.

    Args:
        strategy: how the op's iteration space is divided; its dims are index variables.
        dims: the index variable of each of the output's dims.
        reducers: for each cut, how results are joined if it cuts a reduction variable.

    A cut along a variable that this output does not have leaves it replicated.
    """
    made = Tiling((), ())
    for placement, reducer, ways in zip(strategy.placements, reducers, strategy.ways, strict=True):
        there: Placement = Replicate()
        if reducer is not None:
            there = Partial(reducer)
        elif isinstance(placement, Shard) and placement.dim in dims:
            there = Shard(dims.index(placement.dim), placement.block)
        elif isinstance(placement, Only):
            there = placement
        made = made.extend(there, ways)
    return made
