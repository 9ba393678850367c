"""What is copied to a GPU that cannot read the memory of another one: ranges, and where they go."""

from __future__ import annotations

import numpy as np
import pytest

from planner.algebra.region import Region
from planner.algebra.tiling import Reducer
from planner.artifacts.program import Buffer, Fetch, Piece, Source, WorkerProgram
from planner.graph.core.model import DType
from planner.runtime.engine.gpu.fetches.staging import span_bytes, staging_of

FRAME = Region((2, 1, 0), (7, 5, 6))
"""Of a buffer of 5 x 4 x 6 elements."""


def program(worker: int) -> WorkerProgram:
    buffers = {name: Buffer(name, "T", FRAME, FRAME.shape, DType.FLOAT32) for name in ("one", "two")}
    return WorkerProgram(worker, buffers, (), (), (), ())


def fetch(*pieces: tuple[Region, tuple[Source, ...]], reducer: Reducer | None = None) -> Fetch:
    return Fetch("f", "t", tuple(Piece(*piece) for piece in pieces), reducer, 0)


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.INT8])
@pytest.mark.parametrize(
    "region",
    [FRAME, Region((3, 2, 1), (6, 4, 5)), Region((2, 1, 5), (7, 5, 6)), Region((6, 4, 5), (7, 5, 6))],
    ids=["all", "inside", "last column", "last element"],
)
def test_a_span_is_from_the_first_element_to_the_last(region: Region, dtype: DType) -> None:
    numbers = np.arange(FRAME.elements).reshape(FRAME.shape)[region.within(FRAME)]
    begin, end = span_bytes(region, Buffer("b", "T", FRAME, FRAME.shape, dtype))
    assert (begin, end) == (numbers.min() * dtype.item_bytes, (numbers.max() + 1) * dtype.item_bytes)


def test_a_span_of_a_scalar() -> None:
    one = Region((0,), (1,))
    assert span_bytes(one, Buffer("b", "T", one, (), DType.FLOAT64)) == (0, 8)


def test_only_rows_that_are_needed_are_copied_and_only_from_far_workers() -> None:
    """Rows of 24 elements, 96 bytes: the second of one, the first and last of another one."""
    second, first, last = (Region((row, 1, 0), (row + 1, 5, 6)) for row in (3, 2, 6))
    group = [
        fetch(
            (second, (Source(0, "one"), Source(1, "one"), Source(2, "one"))),
            (first, (Source(1, "two"),)),
            (last, (Source(1, "two"),)),
            reducer=Reducer.SUM,
        )
    ]
    found = staging_of(group, {1}, [program(worker) for worker in range(3)])
    assert [(r.source, r.begin_bytes, r.size_bytes, r.offset_bytes) for r in found.ranges] == [
        (Source(1, "one"), 96, 96, 96 % 64),
        (Source(1, "two"), 0, 96, 128),
        (Source(1, "two"), 4 * 96, 96, 256),
    ]
    assert found.size_bytes == 384


def test_columns_that_interleave_are_copied_once() -> None:
    """Three boxes of two columns reach over nearly all of the buffer, each; together they are the buffer."""
    columns = [Region((2, 1, first), (7, 5, first + 2)) for first in (0, 2, 4)]
    found = staging_of([fetch(*((box, (Source(1, "one"),)) for box in columns))], {1}, [program(0), program(1)])
    assert [(r.begin_bytes, r.size_bytes) for r in found.ranges] == [(0, FRAME.elements * 4)]


def test_nothing_is_copied_where_all_can_be_read() -> None:
    found = staging_of([fetch((FRAME, (Source(1, "one"),)))], (), [program(0), program(1)])
    assert (found.ranges, found.size_bytes) == ((), 0)


def test_fetches_of_one_launch_have_copies_of_their_own() -> None:
    """What both need is copied once; two rows that do not touch are not."""
    rows = [Region((row, 1, 0), (row + 1, 5, 6)) for row in (2, 4, 6)]
    group = [fetch((one, (Source(1, "one"),)), (rows[1], (Source(1, "one"),))) for one in (rows[0], rows[2])]
    found = staging_of(group, {1}, [program(0), program(1)])
    assert [(r.begin_bytes, r.size_bytes, r.offset_bytes) for r in found.ranges] == [
        (0, 96, 0),
        (192, 96, 128),
        (384, 96, 256),
    ]
    ends = [r.offset_bytes + r.size_bytes for r in found.ranges]
    assert all(end <= r.offset_bytes for end, r in zip(ends, found.ranges[1:], strict=False))
    assert found.size_bytes >= ends[-1]
