"""Tensors that stay partial: what ``P`` at a cut means for a tensor that is held, and for what moves.

Each group of such a cut holds a contribution of its own to the tensor, and the tensor is the sum of them. Nothing is
joined there: the groups go on each for itself, so that what moves inside of a group is what would move if the cut
replicated the tensor, and nothing moves between groups. This holds for how the tensor is made, owned and read:

    made    owned   read
    P       P       P        contributions stay where they are
    P       other   other    joined on the way to where the tensor is owned (``delivery.reduced_boxes``)
    other   P                impossible: there are no contributions
            P       other    impossible: the readers of a sum must take contributions as they are
            other   P        impossible: each group would add all of it
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.algebra.tiling import Partial, Replicate, Tiling, coordinates

Cuts: TypeAlias = tuple[int, ...]
Mask: TypeAlias = NDArray[np.bool_]

IMPOSSIBLE = 1 << 56
"""The least impossible entry of a table: more than any possible one, in elements, bytes or picoseconds."""


@lru_cache(maxsize=65536)
def partial_cuts(tiling: Tiling) -> Cuts:
    """The cuts at which a tiling is partial."""
    return tuple(cut for cut, placement in enumerate(tiling.placements) if isinstance(placement, Partial))


@lru_cache(maxsize=65536)
def settled(source: Tiling, owned: Tiling) -> Tiling | None:
    """The tiling of a made tensor, seen from inside the groups of the cuts at which it stays partial: as if replicated
    there.

    None if it is owned as contributions that are not made.
    """
    cuts = partial_cuts(owned)
    if not cuts:
        return source
    if any(source.placements[cut] != owned.placements[cut] for cut in cuts):
        return None
    placements = (Replicate() if cut in cuts else placement for cut, placement in enumerate(source.placements))
    return Tiling(tuple(placements), source.ways)


@lru_cache(maxsize=4096)
def holders(held: Tiling) -> Mask:
    """The workers that hold parts of the same contribution as a worker, shape [workers, workers].

    All do if the tensor is not partial.
    """
    groups, apart = coordinates(held.ways), list(partial_cuts(held))
    mask: Mask = (groups[:, None, apart] == groups[None, :, apart]).all(axis=2)
    mask.flags.writeable = False
    return mask


def impossible_reads(owned: Sequence[Tiling], strategies: Sequence[Tiling]) -> Mask | None:
    """The pairs with which an op cannot read a tensor as it is owned, shape [owned, strategies]; None if it can
    everywhere.
    """
    return _differing([partial_cuts(tiling) for tiling in owned], [partial_cuts(strategy) for strategy in strategies])


def _differing(rows: Sequence[Cuts], columns: Sequence[Cuts]) -> Mask | None:
    if not any(rows) and not any(columns):
        return None
    return np.array([[row != column for column in columns] for row in rows], dtype=np.bool_)
