"""Squares of tiles: each worker has as much of the square as of the tensor."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.algebra.tiling import Placement, Replicate, Shard, Tiling
from planner.features.report.page.columns import Drawn
from planner.features.report.page.glyphs import PALETTE, SIDE, Glyphs

_RECTANGLE = re.compile(r"M\S+ \S+h([\d.e-]+)v([\d.e-]+)h-")


def areas(symbols: str) -> dict[str, float]:
    """By colour, how much of the only square has it."""
    areas_by_colour = {}
    for path, fill in re.findall(r'<path d="([^"]*)" fill="(#[0-9A-F]{6})">', symbols):
        areas_by_colour[fill] = sum(float(width) * float(height) for width, height in _RECTANGLE.findall(path))
    return areas_by_colour


@given(
    st.lists(st.sampled_from([Shard(0), Shard(1), Shard(2), Replicate()]), min_size=1, max_size=3),
    st.sampled_from([(8, 8, 8), (16, 12, 9), (9, 10, 11)]),
)
def test_each_worker_has_its_share_of_the_square(placements: list[Placement], shape: tuple[int, ...]) -> None:
    tiling = Tiling(tuple(placements), (2,) * len(placements))
    glyphs = Glyphs()
    assert glyphs.of(tiling, shape, Drawn("x", 0, 1)) == "g0"
    shares = areas(str(glyphs.symbols()))
    assert set(shares) == set(PALETTE[: tiling.workers])
    assert sum(shares.values()) == pytest.approx(SIDE * SIDE, rel=1e-2)
    boxes = tiling.boxes(shape)
    alike = [(tuple(lo), tuple(hi)) for lo, hi in zip(boxes.lo.tolist(), boxes.hi.tolist(), strict=True)]
    behind = [pair[0][:2] + pair[1][:2] for pair in dict.fromkeys(alike)]
    for worker, (lo, hi) in enumerate(alike):
        seen = SIDE * SIDE * (hi[0] - lo[0]) * (hi[1] - lo[1]) / (shape[0] * shape[1])
        share = seen / behind.count(lo[:2] + hi[:2]) / alike.count((lo, hi))
        assert shares[PALETTE[worker]] == pytest.approx(share, rel=1e-2)


def test_equal_squares_are_written_once_and_other_ones_apart() -> None:
    glyphs = Glyphs()
    halves, whole = Tiling((Shard(0),), (2,)), Tiling((Replicate(),), (2,))
    drawn = Drawn("x", 0, 1)
    assert glyphs.of(halves, (4, 4), drawn) == glyphs.of(halves, (8, 2), drawn)
    assert glyphs.of(whole, (4, 4), drawn) != glyphs.of(halves, (4, 4), drawn)
    assert str(glyphs.symbols()).count("<symbol") == 2


def test_held_by_all_is_told_apart_from_divided_without_colour() -> None:
    glyphs = Glyphs()
    glyphs.of(Tiling((Replicate(),), (2,)), (4, 4), Drawn("x", 0, 1))
    assert 'stroke="#FFF"' in str(glyphs.symbols())
    divided = Glyphs()
    divided.of(Tiling((Shard(0),), (2,)), (4, 4), Drawn("x", 0, 1))
    assert 'stroke="#FFF"' not in str(divided.symbols())


def test_a_vector_a_scalar_and_a_tensor_of_many_workers_have_squares() -> None:
    glyphs = Glyphs()
    glyphs.of(Tiling((Shard(0),), (2,)), (4,), Drawn("v", 0, None))
    glyphs.of(Tiling((Replicate(),), (2,)), (), Drawn("s", None, None))
    glyphs.of(Tiling((Shard(0),), (128,)), (256, 4), Drawn("w", 0, 1))
    assert str(glyphs.symbols()).count("<symbol") == 3
    assert "128 workers" in str(glyphs.symbols())
