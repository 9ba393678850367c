"""Elements of an array that lies in a file, read by their positions there.

Nothing is mapped: a file that is cut short or a disk that fails is then an error with a name, and no signal. Of a large
array no more is read than a tile needs, and of rows that are cut, what comes from the disk anyway.
"""

from __future__ import annotations

import math
import os
from typing import Final

import numpy as np

from planner.algebra.region import Region
from planner.graph.core.model import DType, Shape
from planner.graph.files.external import stored_bits

_READ_ELEMENTS: Final = 1 << 18
"""Elements that are read at a time."""
_PAGE_ELEMENTS: Final = 1 << 10
"""Of a row that is no longer than this, all is read where a part is wanted: so much comes from the disk anyway."""


class UnfitError(OSError):
    """A file that can be opened and is not to be read; the words follow its name."""


def fault(error: OSError) -> str:
    """The fault of a file, in words that follow its name."""
    if isinstance(error, FileNotFoundError):
        return "is not there"
    return str(error) if isinstance(error, UnfitError) else f"cannot be read: {error.strerror or error}"


def fill_region(
    target: np.ndarray, file: int, start: int, dtype: DType, first: int, space: Shape, region: Region
) -> None:
    """Reads a region of an array in a file.

    Args:
        target: of the region's shape.
        file: its descriptor.
        start: where the tensor begins in the file, in bytes.
        dtype: of the tensor.
        first: where the array begins in the tensor, in elements.
        space: of the array, at least one dim.
        region: of the array.
    """
    lo, hi = region.lo[0], region.hi[0]
    inner = Region(region.lo[1:], region.hi[1:])
    row = math.prod(space[1:])
    if inner.shape == space[1:]:
        flat = target.reshape(-1)
        for done in range(0, flat.size, _READ_ELEMENTS):
            part = flat[done : done + _READ_ELEMENTS]
            part[:] = elements_at(file, start, dtype, first + lo * row + done, part.size)
    elif row <= _PAGE_ELEMENTS:
        wanted = tuple(slice(*bounds) for bounds in zip(inner.lo, inner.hi, strict=True))
        rows = _READ_ELEMENTS // max(1, row)
        for index in range(lo, hi, rows):
            part = target[index - lo : index - lo + rows]
            read = elements_at(file, start, dtype, first + index * row, len(part) * row)
            part[:] = read.reshape(len(part), *space[1:])[:, *wanted]
    else:
        for index in range(lo, hi):
            fill_region(target[index - lo], file, start, dtype, first + index * row, space[1:], inner)


def elements_at(file: int, start: int, dtype: DType, first: int, count: int) -> np.ndarray:
    """Some elements of a tensor that follow each other, as ONNX stores them: little-endian, narrow integers packed."""
    bits = stored_bits(dtype)
    lo, hi = first * bits // 8, ((first + count) * bits + 7) // 8
    raw = bytes_at(file, start + lo, hi - lo)
    if dtype is DType.BOOL:
        return raw.astype(np.bool_)
    if bits == 8 * dtype.item_bytes:
        return raw.view(f"<u{dtype.item_bytes}").astype(f"=u{dtype.item_bytes}", copy=False).view(dtype.array_dtype)
    parts = (raw[:, None] >> np.arange(0, 8, bits, dtype=np.uint8)) & ((1 << bits) - 1)
    values = parts.reshape(-1)[first - lo * 8 // bits :][:count].astype(np.int8)
    if dtype in (DType.INT4, DType.INT2):
        sign = 1 << (bits - 1)
        values = (values ^ sign) - sign
    return values.astype(dtype.array_dtype)


def bytes_at(file: int, start: int, count: int) -> np.ndarray:
    """Bytes of a file, from a position on.

    Raises:
        UnfitError: it ends before.
        OSError: it cannot be read.
    """
    raw = np.empty(count, np.uint8)
    unread = raw.data
    while unread:
        got = os.preadv(file, [unread], start + count - len(unread))
        if not got:
            raise UnfitError("ends before the tensor does")
        unread = unread[got:]
    return raw
