"""Movement of a tensor from the tiling that it has to the tiling that an op needs.

Bytes are what crosses from one worker to another, summed over all workers. For a worker and a needed region:
the region less what the worker has already. A reduced region costs its size once for each *other* contributor.
Per group of g workers this gives (g-1)*S for an all-gather or a reduce-scatter and 2*(g-1)*S for an all-reduce;
SoyBean's example (section 2.2) counts g where this counts g-1.

The tables of the search and the partitioner both stand on this file.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from planner.algebra.region import Boxes, index_space
from planner.algebra.tiling import (
    Along,
    Only,
    Partial,
    Placement,
    Reducer,
    Replicate,
    Shard,
    Tiling,
    boxes_along,
    coordinates,
    cuts_along,
    shortest_piece,
)


def contributors(source: Tiling) -> NDArray[np.bool_]:
    """The workers whose partial results a worker reduces, shape [workers, workers].

    Workers that hold the same part again (a replicated cut) serve their own group only.
    """
    groups = coordinates(source.ways)
    repeated = [cut for cut, placement in enumerate(source.placements) if isinstance(placement, Replicate)]
    is_contributor: NDArray[np.bool_] = (groups[:, None, repeated] == groups[None, :, repeated]).all(axis=2)
    return is_contributor


def reducer_of(source: Tiling) -> Reducer | None:
    """The reducer of a partial result; None if the tiling has none.

    An op's cuts along reduction variables all have the reducer of its outermost operation.
    """
    for placement in source.placements:
        if isinstance(placement, Partial):
            return placement.reducer
    return None


def reduced_boxes(source: Tiling, owned: Tiling, shape: tuple[int, ...]) -> Boxes:
    """The boxes in which partial results are reduced on their way into ``owned``: a tiling X that spreads the work.

    P -> R is always P -> X -> R. The rule: a worker reduces its own tile; where several workers own the same
    tile and hold partial results of it, they share the tile out among them, cut by cut along its longest dim.
    A tile with too few elements goes to the first of them.
    """
    base, cuts = reduction(source, owned)
    return shared_out(base, cuts, shape)


@lru_cache(maxsize=262144)
def reduction(source: Tiling, owned: Tiling) -> tuple[Tiling, tuple[int, ...]]:
    """The tiles in which partial results are reduced, and the cuts whose groups share each tile out among them.

    See ``reduced_boxes`` for the rule.
    """
    base: list[Shard | Only | Replicate] = []
    shared: list[int] = []
    for cut, (placement, target) in enumerate(zip(source.placements, owned.placements, strict=True)):
        if isinstance(target, Shard | Only):
            base.append(target)
        elif isinstance(placement, Shard | Only):
            base.append(placement)
        else:
            base.append(Replicate())
            if isinstance(placement, Partial):
                shared.append(cut)
    return Tiling(tuple(base), source.ways).settled, tuple(shared)


@lru_cache(maxsize=65536)
def shared_out(base: Tiling, cuts: tuple[int, ...], shape: tuple[int, ...]) -> Boxes:
    """The tiles of ``base``, each shared out among the groups of these cuts along its longest dim."""
    return boxes_along(shared_along(base, cuts, shape), base.ways, shape)


def shared_along(base: Tiling, cuts: tuple[int, ...], shape: tuple[int, ...]) -> Along:
    """The division of each dim by the tiles of ``shared_out``, as ``cuts_along`` gives that of a tiling."""
    along = {dim: (mine, how) for dim, mine, how in cuts_along(base)}
    space = index_space(shape)
    shortest = [shortest_piece(extent, along[dim][1] if dim in along else ()) for dim, extent in enumerate(space)]
    for cut in cuts:
        ways, longest = base.ways[cut], max(shortest)
        dim, piece = (shortest.index(longest), 1) if longest >= ways else (0, Only(0))
        mine, how = along.get(dim, ((), ()))
        along[dim] = ((*mine, cut), (*how, (ways, piece)))
        shortest[dim] = shortest_piece(space[dim], along[dim][1])
    return tuple((dim, mine, how) for dim, (mine, how) in along.items())


def can_split(boxes: Boxes, dim: int, ways: int) -> bool:
    """True if every worker's region has at least ``ways`` elements along the dim."""
    return bool((boxes.hi[:, dim] - boxes.lo[:, dim]).min() >= ways)


@lru_cache(maxsize=262144)
def made_tiling(
    strategy: Tiling, dims: tuple[int, ...], reducers: tuple[Reducer | None, ...], steps: tuple[int, ...] = ()
) -> Tiling:
    """The tiling in which an op makes an output.

    Args:
        strategy: how the op's iteration space is divided; its dims are index variables.
        dims: the index variable of each of the output's dims.
        reducers: for each cut, how results are joined if it cuts a reduction variable.
        steps: how many elements of each dim go with one value of its variable; () for one of each.

    A cut along a variable that this output does not have leaves it replicated.
    """
    placements: list[Placement] = []
    for placement, reducer in zip(strategy.placements, reducers, strict=True):
        if reducer is not None:
            placements.append(Partial(reducer))
        elif isinstance(placement, Shard) and placement.dim in dims:
            dim = dims.index(placement.dim)
            placements.append(placement._replace(dim=dim, block=placement.block * (steps[dim] if steps else 1)))
        elif isinstance(placement, Only):
            placements.append(placement)
        else:
            placements.append(Replicate())
    return Tiling(tuple(placements), strategy.ways).settled
