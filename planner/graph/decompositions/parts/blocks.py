"""A dim as blocks, one for each worker: what is computed along the whole dim is computed of each block, and joined."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.graph.core.emitter import Emitter

_FEW_POSITIONS = 32
"""A dim of no more elements than this is not divided into blocks."""


def are_worth_blocks(emitter: Emitter, x: str, dim: int) -> bool:
    """Whether there are several workers, and a tensor's dim is long enough for them."""
    return emitter.workers > 1 and emitter.shape(x)[dim] > max(_FEW_POSITIONS, emitter.workers)


@dataclass(frozen=True, slots=True)
class Blocks:
    """A tensor one of whose dims has become two: block, and place in the block."""

    name: str
    """Of the tensor, such as [rows, blocks, places] for one of [rows, positions]."""
    dim: int
    """That of the blocks; the next one is that of the places."""
    places: int
    """How many a block has. All but the last block hold as many elements; what the last one lacks is a fill value."""


def in_blocks(emitter: Emitter, x: str, dim: int, fill: float) -> Blocks:
    """The blocks of a tensor's dim, one for each worker.

    Args:
        emitter: gets the ops.
        x: the tensor.
        dim: to be divided.
        fill: what stands behind the last element, where the size is no multiple of their count.
    """
    shape, count = emitter.shape(x), emitter.workers
    places = -(-shape[dim] // count)
    behind = [count * places - size if axis == dim else 0 for axis, size in enumerate(shape)]
    x = emitter.pad(x, [0] * len(shape), behind, fill)
    return Blocks(emitter.reshape(x, (*shape[:dim], count, places, *shape[dim + 1 :]), "blocks"), dim, places)


def merged(emitter: Emitter, x: str, dim: int, part: str) -> str:
    """The dims of blocks and of places as one dim."""
    shape = emitter.shape(x)
    return emitter.reshape(x, (*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :]), part)


def joined(emitter: Emitter, x: str, dim: int, size: int, part: str) -> str:
    """The inverse of ``in_blocks``: what was filled in, behind so many elements, is left out."""
    full = merged(emitter, x, dim, f"{part}.wide")
    wide = emitter.shape(full)
    return emitter.slice(full, [0] * len(wide), (*wide[:dim], size, *wide[dim + 1 :]))


def between_neighbours(emitter: Emitter, blocks: Blocks, before: int, after: int) -> str:
    """Each block between so many elements of those before it and of those after it; zeros beyond the ends."""
    shape, places, dim = emitter.shape(blocks.name), blocks.places, blocks.dim
    parts = []
    for ahead in range(-before // places, (places + after - 1) // places + 1):
        starts, ends = [0] * len(shape), list(shape)
        starts[dim + 1] = max(0, -before - ahead * places)
        ends[dim + 1] = min(places, places + after - ahead * places)
        part = emitter.slice(blocks.name, starts, ends)
        if ahead:
            moved = [ahead if axis == dim else 0 for axis in range(len(shape))]
            pads = emitter.ints([*(-blocks for blocks in moved), *moved], "moved.pads")
            part = emitter.one("Pad", (part, pads), emitter.shape(part), emitter.dtype(part), hint="moved")
        parts.append(part)
    return emitter.concat(parts, dim + 1, "between")


def numbered(emitter: Emitter, blocks: Blocks, part: str) -> str:
    """The first position of each block, in a shape that broadcasts to the blocks."""
    shape = emitter.shape(blocks.name)
    first = np.arange(shape[blocks.dim], dtype=np.int64) * blocks.places
    return emitter.constant(first.reshape(-1, *(1 for _ in shape[blocks.dim + 1 :])), part)
