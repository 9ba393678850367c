"""MultiFetch: fetches as one kernel (Tofu, section 6).

Tofu's kernel "fetches remote data blocks and directly outputs an assembled buffer in place" through unified virtual
addressing. Here the fetches of a worker that nothing separates become one work list, laid out once when they are bound:
an item, a row of numbers, for every block of threads (``fetch_kernel.py`` says what is in it and what a block does).
One launch copies or reduces all pieces of all fetches, whatever their dtypes and reducers: an item says its kind, and
the kernel is compiled for the kinds that occur. A piece of one source is a copy, so no bit of it changes.

A piece is a box of the target and of each source. Dims that are contiguous in all of them are joined, so that most
pieces have one or two. The innermost is cut in three where addresses allow: what lies between addresses that are
multiples of 16 bytes in all arrays is moved 16 bytes at once, what is before and behind element by element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from planner.algebra.tiling import Reducer
from planner.artifacts.program import Fetch, Source
from planner.errors import UnsupportedError
from planner.graph.core.model import DType
from planner.runtime.engine.core.transport import Locate
from planner.runtime.engine.gpu.fetches import fetch_kernel as kernel
from planner.runtime.engine.gpu.fetches.fetch_kernel import Kind, Word

ITEM_UNITS: Final = 2 * kernel.UNROLL * kernel.THREADS
"""What a block moves at most: every thread goes round its loop twice."""
_WORTH: Final = 8
"""A row is cut in three if it has so many of the wide units: each cut makes items that move little."""


@dataclass(frozen=True, slots=True, eq=False)
class WorkList:
    """Fetches as numbers."""

    items: NDArray[np.int64]
    """A row for each block of the launch."""
    kinds: tuple[Kind, ...]
    """What the first word of an item counts; the kernel is made for them."""
    moved_bytes: tuple[int, ...]
    """For each fetch: what the kernel reads from other workers' memory, from the boxes that the items are made of."""


@dataclass(frozen=True, slots=True)
class _Box:
    """A piece, or the part of its columns that is moved in units of one width. The target's numbers come first."""

    kind: Kind
    addresses: tuple[int, ...]
    extents: tuple[int, ...]
    """In units."""
    strides: tuple[tuple[int, ...], ...]
    """In units; the last is 1."""


def work_list(
    fetches: Sequence[tuple[Fetch, DType]], worker: int, locate: Locate, address_of: Callable[[Any], int]
) -> WorkList:
    """Lays out fetches that run together.

    Args:
        fetches: what is to be assembled, and the dtype of its elements. None reads what another one fills.
        worker: that assembles them.
        locate: finds the memory of sources and targets.
        address_of: the address of an array's first element.

    Raises:
        UnsupportedError: partial results of a dtype that is only copied.
    """
    boxes: list[_Box] = []
    moved_bytes = []
    for fetch, dtype in fetches:
        if fetch.reducer is not None and dtype not in kernel.joinable():
            raise UnsupportedError(
                f"partial results of {dtype.value} cannot be joined on a GPU", hint="run the plan with --device cpu"
            )
        target = locate(Source(worker, fetch.target))
        moved = 0
        for piece in fetch.pieces:
            views = [target.array[piece.region.within(target.region)]]
            for source in piece.sources:
                tile = locate(source)
                views.append(tile.array[piece.region.within(tile.region)])
                moved += views[-1].nbytes if source.worker != worker else 0
            assert len(views) == 2 or fetch.reducer is not None, "several sources and no reducer"
            boxes += _boxes(views, address_of, dtype, fetch.reducer if len(views) > 2 else None)
        moved_bytes.append(moved)
    kinds = sorted({box.kind for box in boxes}, key=str)
    words = Word.ARRAYS + kernel.ARRAY_WORDS * max((len(box.addresses) for box in boxes), default=0)
    items = [_items(box, kinds.index(box.kind), words) for box in boxes]
    return WorkList(np.concatenate(items or [np.empty((0, words), np.int64)]), tuple(kinds), tuple(moved_bytes))


def joined_dims(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """Extents and strides with dims joined where they are contiguous in all arrays."""
    extents: list[int] = []
    joined_strides: list[list[int]] = [[] for _ in strides]
    for dim, extent in enumerate(shape):
        if extent == 1:
            continue
        mine = [steps[dim] for steps in strides]
        if extents and all(steps[-1] == step * extent for steps, step in zip(joined_strides, mine, strict=True)):
            extents[-1] *= extent
            for steps, step in zip(joined_strides, mine, strict=True):
                steps[-1] = step
        else:
            extents.append(extent)
            for steps, step in zip(joined_strides, mine, strict=True):
                steps.append(step)
    return extents, joined_strides


def _boxes(
    views: Sequence[Any], address_of: Callable[[Any], int], dtype: DType, reducer: Reducer | None
) -> Iterator[_Box]:
    """The boxes of a piece: one, or three where its rows begin or end between wide units."""
    item = dtype.item_bytes
    addresses = [address_of(view) for view in views]
    extents, strides = joined_dims(views[0].shape, [view.strides for view in views])
    if not extents or any(steps[-1] != item for steps in strides):  # single elements
        extents, strides = [*extents, 1], [[*steps, item] for steps in strides]
    row_bytes = extents[-1] * item

    def part(begin: int, end: int, unit: int) -> _Box:
        return _Box(
            Kind(unit) if reducer is None else Kind(unit, dtype, reducer),
            tuple(address + begin for address in addresses),
            (*extents[:-1], (end - begin) // unit),
            tuple((*(step // unit for step in steps[:-1]), 1) for steps in strides),
        )

    # Every row of every array begins as many bytes behind a multiple of this width as the target does.
    width = math.gcd(
        kernel.WIDEST_BYTES,
        *(address - addresses[0] for address in addresses),
        *(step for steps in strides for step in steps[:-1]),
    )
    row_unit = math.gcd(width, addresses[0], row_bytes)
    if reducer is not None and width < kernel.WIDEST_BYTES:
        width = item
    if row_unit < width and row_bytes >= _WORTH * width:
        begin = -addresses[0] % width
        end = begin + (row_bytes - begin) // width * width
        cuts = [(0, begin, item), (begin, end, width), (end, row_bytes, item)]
        yield from (part(first, last, unit) for first, last, unit in cuts if first < last)
    else:
        yield part(0, row_bytes, row_unit if reducer is None or row_unit == kernel.WIDEST_BYTES else item)


def _items(box: _Box, kind: int, words: int) -> NDArray[np.int64]:
    """A box, cut into items: along the outermost dim that an item cannot hold whole, and along all those before it."""
    room = ITEM_UNITS
    chunks: list[int] = []
    for dim, extent in enumerate(reversed(box.extents)):
        # An item has three dims at most, and no dim outside of one that it cannot hold whole.
        chunk = min(extent, room) if dim < 3 else 1
        chunks.append(chunk)
        room = room // chunk if chunk == extent else 1
    chunks.reverse()
    starts = np.meshgrid(
        *(np.arange(0, extent, chunk) for extent, chunk in zip(box.extents, chunks, strict=True)), indexing="ij"
    )
    sizes = [
        np.minimum(chunk, extent - start).ravel()
        for start, extent, chunk in zip(starts, box.extents, chunks, strict=True)
    ]
    ones = np.ones_like(sizes[0])
    planes, rows, units = (ones, ones, *sizes)[-3:]
    items = np.zeros((len(ones), words), np.int64)
    steps = (kernel.THREADS % units, kernel.THREADS // units % rows, kernel.THREADS // units // rows)
    items[:, : Word.ARRAYS] = np.stack(
        [kind * ones, units, rows, planes, (len(box.addresses) - 1) * ones, *steps], axis=1
    )
    for number, (address, strides) in enumerate(zip(box.addresses, box.strides, strict=True)):
        begin = sum(start.ravel() * stride for start, stride in zip(starts, strides, strict=True))
        first = Word.ARRAYS + number * kernel.ARRAY_WORDS
        items[:, first] = address + begin * box.kind.unit_bytes
        items[:, first + 1], items[:, first + 2] = (0, 0, *strides)[-2], (0, 0, *strides)[-3]
    return items
