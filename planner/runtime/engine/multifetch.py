"""MultiFetch: a whole fetch as one kernel (Tofu, section 6).

Tofu's kernel "fetches remote data blocks and directly outputs an assembled buffer in place" through unified virtual
addressing. Here a fetch becomes a table of numbers, laid out once when it is bound: for every piece its box, where
it begins in the target, and where it begins in every source. One launch copies or reduces all pieces; a piece's
contributors are joined in the order given, so that two runs give the same bits.

The table, 64-bit integers:

    pieces, then for each piece where its record begins, then the number of elements of all pieces before it, and of all
    record: rank, extents[rank], target pointer, target strides[rank], sources, then per source pointer, strides[rank]

Strides are in elements. Dims that are contiguous in the target and in all sources are joined, so that most pieces have
one or two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from planner.algebra.tiling import Reducer
from planner.artifacts.program import Fetch, Source
from planner.errors import UnsupportedError
from planner.graph.model import DType
from planner.runtime.engine.transport import Locate

THREADS: Final = 256
NAME: Final = "multifetch"

_TYPES: Final = {
    DType.FLOAT64: ("double", "double"),
    DType.FLOAT32: ("float", "float"),
    DType.FLOAT16: ("__half", "float"),
    DType.BFLOAT16: ("__nv_bfloat16", "float"),
    DType.INT64: ("long long", "long long"),
    DType.INT32: ("int", "int"),
    DType.INT16: ("short", "short"),
    DType.INT8: ("signed char", "signed char"),
    DType.UINT64: ("unsigned long long", "unsigned long long"),
    DType.UINT32: ("unsigned int", "unsigned int"),
    DType.UINT16: ("unsigned short", "unsigned short"),
    DType.UINT8: ("unsigned char", "unsigned char"),
    DType.BOOL: ("bool", "bool"),
}
"""CUDA's type of an element, and that in which contributors are joined: half precision is rounded once.

Other dtypes have elements of a byte, and are copied as such.
"""
_JOINS: Final = {
    None: "(a)",
    Reducer.SUM: "((a) + (b))",
    Reducer.PROD: "((a) * (b))",
    # As NumPy's: what is no number stays.
    Reducer.MAX: "((a) != (a) || (a) >= (b) ? (a) : (b))",
    Reducer.MIN: "((a) != (a) || (a) <= (b) ? (a) : (b))",
}

_HEADERS: Final = {"__half": "#include <cuda_fp16.h>\n", "__nv_bfloat16": "#include <cuda_bf16.h>\n"}

_SOURCE: Final = r"""
#define JOIN(a, b) %(join)s
extern "C" __global__ void multifetch(const long long* table) {
  typedef %(element)s T;
  typedef %(joined)s A;
  const long long pieces = table[0];
  const long long* records = table + 1;
  const long long* before = table + 1 + pieces;
  const long long total = before[pieces];
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += step) {
    long long lo = 0, hi = pieces - 1;
    while (lo < hi) {
      const long long mid = (lo + hi + 1) / 2;
      if (before[mid] <= i) lo = mid; else hi = mid - 1;
    }
    const long long* record = table + records[lo];
    const long long rank = record[0];
    const long long* extents = record + 1;
    const long long* target = extents + rank;
    const long long sources = target[1 + rank];
    const long long* source = target + 2 + rank;
    long long rest = i - before[lo], to = 0;
    for (long long d = rank - 1; d >= 0; --d) {
      to += (rest %% extents[d]) * target[1 + d];
      rest /= extents[d];
    }
    A a;
    for (long long s = 0; s < sources; ++s, source += 1 + rank) {
      rest = i - before[lo];
      long long from = 0;
      for (long long d = rank - 1; d >= 0; --d) {
        from += (rest %% extents[d]) * source[1 + d];
        rest /= extents[d];
      }
      const A b = (A)((const T*)source[0])[from];
      a = s == 0 ? b : (A)JOIN(a, b);
    }
    ((T*)target[0])[to] = (T)a;
  }
}
"""


@dataclass(frozen=True, slots=True, eq=False)
class FetchTable:
    """A fetch as numbers."""

    numbers: NDArray[np.int64]
    elements: int
    """Of all pieces."""
    moved_bytes: int
    """What the kernel reads from other workers' memory, from the boxes in the table."""


def kernel_source(dtype: DType, reducer: Reducer | None) -> str:
    """The kernel's code for elements of a dtype.

    Raises:
        UnsupportedError: partial results of a dtype that is only copied.
    """
    if reducer is not None and dtype not in _TYPES:
        raise UnsupportedError(
            f"partial results of {dtype.value} cannot be joined on a GPU", hint="run the plan with --device cpu"
        )
    element, joined = _TYPES.get(dtype, ("unsigned char", ""))
    if reducer is None:
        joined = element  # a copy keeps every bit
    return _HEADERS.get(element, "") + _SOURCE % {"element": element, "joined": joined, "join": _JOINS[reducer]}


def blocks(elements: int) -> int:
    """How many blocks of ``THREADS`` threads a launch has."""
    return max(1, min(-(-elements // THREADS), 65535))


def table_of(fetch: Fetch, worker: int, locate: Locate, address_of: Any) -> FetchTable:
    """Lays out a fetch.

    Args:
        fetch: what is to be assembled.
        worker: that assembles it.
        locate: finds the memory of sources and target.
        address_of: the address of an array's first element.
    """
    target = locate(Source(worker, fetch.target))
    item_bytes = int(target.array.dtype.itemsize)
    records: list[list[int]] = []
    counts: list[int] = []
    moved = 0
    for piece in fetch.pieces:
        views = [target.array[piece.region.within(target.region)]]
        for source in piece.sources:
            tile = locate(source)
            views.append(tile.array[piece.region.within(tile.region)])
            moved += views[-1].nbytes if source.worker != worker else 0
        extents, strides = joined_dims(
            views[0].shape, [[stride // item_bytes for stride in view.strides] for view in views]
        )
        record = [len(extents), *extents, address_of(views[0]), *strides[0], len(views) - 1]
        for view, steps in zip(views[1:], strides[1:], strict=True):
            record += [address_of(view), *steps]
        records.append(record)
        counts.append(piece.region.elements)
    starts = np.cumsum([2 + 2 * len(records), *(len(record) for record in records)])[:-1]
    before = np.cumsum([0, *counts])
    numbers = [len(records), *starts, *before, *(number for record in records for number in record)]
    return FetchTable(np.array(numbers, np.int64), int(before[-1]), moved)


def joined_dims(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """Extents and strides with dims joined where they are contiguous in all arrays."""
    extents: list[int] = []
    kept: list[list[int]] = [[] for _ in strides]
    for dim, extent in enumerate(shape):
        if extent == 1:
            continue
        mine = [steps[dim] for steps in strides]
        if extents and all(found[-1] == step * extent for found, step in zip(kept, mine, strict=True)):
            extents[-1] *= extent
            for found, step in zip(kept, mine, strict=True):
                found[-1] = step
        else:
            extents.append(extent)
            for found, step in zip(kept, mine, strict=True):
                found.append(step)
    return extents, kept
