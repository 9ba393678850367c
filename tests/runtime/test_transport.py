"""Fetches on arrays: what is copied, in which order it is joined, and what is counted."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.algebra.region import Region
from planner.algebra.tiling import Reducer
from planner.artifacts.program import Fetch, Piece, Source
from planner.runtime.engine.core.transport import NumpyTransport, Tile

HERE, THERE = 0, 1


def run(fetch: Fetch, tiles: dict[Source, Tile]) -> int:
    return NumpyTransport().bind(fetch, HERE, tiles.__getitem__).run()


def line(lo: int, hi: int) -> Region:
    return Region((lo,), (hi,))


@given(st.integers(1, 6), st.lists(st.integers(0, 3), min_size=1, max_size=5), st.integers(0, 9))
def test_pieces_of_a_line(first: int, owners: list[int], offset: int) -> None:
    """A line cut in pieces of ``first``, each owned by some worker whose tile is the whole line."""
    length = first * len(owners)
    whole = np.arange(length, dtype=np.float32)
    frame = line(offset, offset + length)
    tiles = {Source(worker, "s"): Tile(whole + 100 * worker, frame) for worker in range(4)}
    target = Tile(np.full(length, -1, np.float32), frame)
    tiles[Source(HERE, "t")] = target
    pieces = [
        Piece(line(offset + first * n, offset + first * (n + 1)), (Source(owner, "s"),))
        for n, owner in enumerate(owners)
    ]
    moved = run(Fetch("f", "t", tuple(pieces), None, 0), tiles)
    np.testing.assert_array_equal(target.array, whole + 100 * np.repeat(owners, first))
    assert moved == 4 * first * sum(owner != HERE for owner in owners)


def reduced(reducer: Reducer, arrays: Sequence[np.ndarray], dtype: object = np.float32) -> np.ndarray:
    region = Region.whole(arrays[0].shape)
    tiles = {Source(worker, "s"): Tile(array.astype(dtype), region) for worker, array in enumerate(arrays)}
    target = Tile(np.zeros(arrays[0].shape, dtype), region)
    tiles[Source(HERE, "t")] = target
    sources = tuple(Source(worker, "s") for worker in range(len(arrays)))
    moved = run(Fetch("f", "t", (Piece(region, sources),), reducer, 0), tiles)
    assert moved == (len(arrays) - 1) * target.array.nbytes
    return target.array


@pytest.mark.parametrize(
    ("reducer", "function"),
    [(Reducer.SUM, np.add), (Reducer.MAX, np.maximum), (Reducer.MIN, np.minimum), (Reducer.PROD, np.multiply)],
)
def test_reductions_run_in_worker_order(reducer: Reducer, function: np.ufunc) -> None:
    arrays = list(np.random.default_rng(0).standard_normal((4, 3, 5)).astype(np.float32))
    wanted = function(function(function(arrays[0], arrays[1]), arrays[2]), arrays[3])
    assert reduced(reducer, arrays).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_rounded_once(dtype: object) -> None:
    small = [np.array([value], np.float32) for value in (256.0, 0.75, 0.75, 0.75)]
    wanted = np.array([258.25], np.float32).astype(dtype)
    assert reduced(Reducer.SUM, small, dtype) == wanted


def test_integers_are_joined_as_integers() -> None:
    arrays = [np.array([2**40, 1]), np.array([1, 2])]
    np.testing.assert_array_equal(reduced(Reducer.SUM, arrays, np.int64), [2**40 + 1, 3])


def test_a_source_that_is_larger_than_the_piece_counts_the_piece() -> None:
    tiles = {
        Source(THERE, "s"): Tile(np.arange(100.0).reshape(10, 10), Region((0, 0), (10, 10))),
        Source(HERE, "t"): Tile(np.zeros((2, 3)), Region((4, 5), (6, 8))),
    }
    fetch = Fetch("f", "t", (Piece(Region((4, 5), (6, 8)), (Source(THERE, "s"),)),), None, 0)
    assert run(fetch, tiles) == 8 * 6
    np.testing.assert_array_equal(tiles[Source(HERE, "t")].array, [[45, 46, 47], [55, 56, 57]])
