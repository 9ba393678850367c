"""Squares of tiles: each worker has as much of the square as of the tensor."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.algebra.tiling import Placement, Replicate, Shard, Tiling
from planner.features.report.page.columns import Drawn
from planner.features.report.page.glyphs import PALETTE, SIDE, Glyphs

_RECTANGLE = re.compile(r"M\S+ \S+h([\d.e-]+)v([\d.e-]+)h-")
_PATH = re.compile(r'<path d="([^"]*)" fill="(#[0-9A-F]{3,6})" class="(shard|sheet|face)"')


def tiling_of(text: str) -> Tiling:
    return Tiling.parse(text, tuple(int(part.rpartition("/")[2]) for part in text.split()))


def paths(tiling: Tiling, shape: tuple[int, ...], drawn: Drawn) -> list[tuple[str, str, str]]:
    """The outline, the fill and the class of each path of a square."""
    glyphs = Glyphs()
    assert glyphs.of(tiling, shape, drawn) == "g0"
    return _PATH.findall(str(glyphs.symbols()))


@given(
    st.lists(st.sampled_from([Shard(0), Shard(1), Shard(2)]), min_size=1, max_size=3),
    st.sampled_from([(8, 8, 8), (16, 12, 9), (9, 10, 11)]),
)
def test_each_worker_has_its_share_of_the_square(placements: list[Placement], shape: tuple[int, ...]) -> None:
    tiling = Tiling(tuple(placements), (2,) * len(placements))
    shares = {
        fill: sum(float(width) * float(height) for width, height in _RECTANGLE.findall(outline))
        for outline, fill, _ in paths(tiling, shape, Drawn("x", 0, 1))
    }
    assert set(shares) == set(PALETTE[: tiling.workers])
    assert sum(shares.values()) == pytest.approx(SIDE * SIDE, rel=1e-2)
    boxes = tiling.boxes(shape)
    alike = [(tuple(lo), tuple(hi)) for lo, hi in zip(boxes.lo.tolist(), boxes.hi.tolist(), strict=True)]
    behind = [lo[:2] + hi[:2] for lo, hi in alike]
    for worker, (lo, hi) in enumerate(alike):
        seen = SIDE * SIDE * (hi[0] - lo[0]) * (hi[1] - lo[1]) / (shape[0] * shape[1])
        assert shares[PALETTE[worker]] == pytest.approx(seen / behind.count(lo[:2] + hi[:2]), rel=1e-2)


def test_equal_squares_are_written_once_and_other_ones_apart() -> None:
    glyphs = Glyphs()
    halves, whole = Tiling((Shard(0),), (2,)), Tiling((Replicate(),), (2,))
    drawn = Drawn("x", 0, 1)
    assert glyphs.of(halves, (4, 4), drawn) == glyphs.of(halves, (8, 2), drawn)
    assert glyphs.of(whole, (4, 4), drawn) != glyphs.of(halves, (4, 4), drawn)
    assert str(glyphs.symbols()).count("<symbol") == 2


@pytest.mark.parametrize(
    ("text", "classes", "label"),
    [
        ("S(0)/4", {"shard": 4}, None),
        ("R/4", {"sheet": 4, "face": 1}, "×4"),
        ("R/8", {"sheet": 4, "face": 1}, "×8"),
        ("P/4", {"sheet": 4, "face": 1}, "Σ4"),
        ("S(0)/2 R/2", {"sheet": 4, "face": 2}, "×2"),
        ("S(2)/2 R/2", {"sheet": 4, "face": 2}, "×2"),
    ],
)
def test_replicas_are_sheets_and_shards_are_flat(text: str, classes: dict[str, int], label: str | None) -> None:
    glyphs = Glyphs()
    glyphs.of(tiling_of(text), (8, 8, 8), Drawn("x", 0, 1))
    symbols = str(glyphs.symbols())
    assert Counter(kind for _, _, kind in _PATH.findall(symbols)) == classes
    texts = re.findall(r">([^<]+)</text>", symbols)
    assert set(texts) == ({label} if label else set("0123"))


def test_sheets_of_replicas_are_offset_and_the_rearmost_is_drawn_first() -> None:
    corners = [
        tuple(map(float, re.findall(r"M(\S+) (\S+?)h", outline)[0]))
        for outline, _, kind in paths(tiling_of("R/4"), (8, 8), Drawn("x", 0, 1))
        if kind == "sheet"
    ]
    assert corners == [(9, 0), (6, 3), (3, 6), (0, 9)]


def test_a_vector_a_scalar_and_a_tensor_of_many_workers_have_squares() -> None:
    glyphs = Glyphs()
    glyphs.of(Tiling((Shard(0),), (2,)), (4,), Drawn("v", 0, None))
    glyphs.of(Tiling((Replicate(),), (2,)), (), Drawn("s", None, None))
    glyphs.of(Tiling((Shard(0),), (128,)), (256, 4), Drawn("w", 0, 1))
    assert str(glyphs.symbols()).count("<symbol") == 3
    assert "128 workers" in str(glyphs.symbols())
