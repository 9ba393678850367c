"""A tensor as a square of tiles, each in the colour of the worker that owns it (Tofu, Figure 11).

A picture has two of the tensor's dims. Tiles that differ in another dim lie one behind the other there: they are drawn
as upright stripes of their place, parted by black lines. Workers that own the same tile share it as lying bands, parted
by white ones. So colour is never alone: lines say what is divided and what is held several times, and each part that
has room for it has the number of its worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from planner.algebra.region import Boxes
from planner.algebra.tiling import Tiling
from planner.features.report.page.columns import Drawn
from planner.features.report.page.markup import Markup, element, joined
from planner.graph.model import Shape

SIDE = 56.0
"""Of the square, in units of the picture."""
PALETTE = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#999999")
"""Colours that people with any kind of colour blindness tell apart (Okabe and Ito, 2008), with grey for black, on which
lines and numbers would not be seen. Worker 8 has worker 0's colour, and another number."""
_LIGHT_TEXT = frozenset({4, 5})
"""Colours on which white numbers are read better than black ones."""
_LEAST_FOR_TEXT = 6.5
_MOST_WORKERS = 64
"""Of more workers, squares would be of lines alone."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A rectangle of the square that belongs to one worker."""

    left: float
    top: float
    width: float
    height: float
    worker: int


class Glyphs:
    """The squares of a picture; equal ones are written once."""

    def __init__(self) -> None:
        self._ids: dict[Markup, str] = {}

    def of(self, tiling: Tiling, shape: Shape, drawn: Drawn) -> str:
        """The id of a square.

        Args:
            tiling: of the tensor.
            shape: of the tensor.
            drawn: which of its dims the square has.
        """
        content = _square(tiling, shape, drawn)
        return self._ids.setdefault(content, f"g{len(self._ids)}")

    def symbols(self) -> Markup:
        """All squares, to be referred to."""
        view = f"0 0 {SIDE:g} {SIDE:g}"
        return element(
            "defs", *(element("symbol", content, id=name, viewBox=view) for content, name in self._ids.items())
        )


def _square(tiling: Tiling, shape: Shape, drawn: Drawn) -> Markup:
    if tiling.workers > _MOST_WORKERS:
        return joined(
            element("rect", width=SIDE, height=SIDE, fill="#EEE", stroke="#000"),
            element("text", f"{tiling.workers} workers", x=SIDE / 2, y=30, font_size=9, text_anchor="middle"),
        )
    tiles = list(_tiles(tiling.boxes(shape), shape, drawn))
    parts = [part for tile in tiles for part in tile.parts()]
    fills: dict[int, str] = {}
    for part in parts:
        fills[part.worker] = fills.get(part.worker, "") + _outline(part.left, part.top, part.width, part.height)
    held = "".join(line for tile in tiles for line in tile.between_owners())
    divided = "".join(line for tile in tiles for line in tile.between_places())
    return joined(
        *(element("path", d=path, fill=PALETTE[worker % len(PALETTE)]) for worker, path in fills.items()),
        element("path", d=held, stroke="#FFF", stroke_width=0.8) if held else "",
        element("path", d=divided, stroke="#000", stroke_width=0.8, fill="none"),
        *_numbers(parts),
    )


@dataclass(frozen=True, slots=True)
class _Tile:
    """A rectangle of the square, and who has what of it."""

    left: float
    top: float
    width: float
    height: float
    places: tuple[tuple[int, ...], ...]
    """Of each place in the dims that are not drawn, the workers that own it."""

    def _stripe(self) -> float:
        return self.width / len(self.places)

    def parts(self) -> Iterator[_Part]:
        """The rectangles of single workers."""
        for number, owners in enumerate(self.places):
            height = self.height / len(owners)
            for row, worker in enumerate(owners):
                left, top = self.left + number * self._stripe(), self.top + row * height
                yield _Part(left, top, self._stripe(), height, worker)

    def between_places(self) -> Iterator[str]:
        """The outline, and lines between places."""
        yield _outline(self.left, self.top, self.width, self.height)
        for number in range(1, len(self.places)):
            yield f"M{self.left + number * self._stripe():.4g} {self.top:.4g}v{self.height:.4g}"

    def between_owners(self) -> Iterator[str]:
        """Lines between those that own the same."""
        for number, owners in enumerate(self.places):
            for row in range(1, len(owners)):
                top = self.top + row * self.height / len(owners)
                yield f"M{self.left + number * self._stripe():.4g} {top:.4g}h{self._stripe():.4g}"


def _tiles(boxes: Boxes, shape: Shape, drawn: Drawn) -> Iterator[_Tile]:
    """The rectangles of a square, by the regions of the workers."""
    shown = [dim for dim in (drawn.down, drawn.across) if dim is not None]
    hidden = [dim for dim in range(len(shape)) if dim not in shown]
    rectangles: dict[tuple[float, float, float, float], dict[tuple[int, ...], list[int]]] = {}
    for worker, (lo, hi) in enumerate(zip(boxes.lo.tolist(), boxes.hi.tolist(), strict=True)):
        if any(start >= end for start, end in zip(lo, hi, strict=True)):
            continue  # it has nothing
        top, height = _extent(lo, hi, shape, drawn.down)
        left, width = _extent(lo, hi, shape, drawn.across)
        place = tuple(bound for dim in hidden for bound in (lo[dim], hi[dim]))
        rectangles.setdefault((left, top, width, height), {}).setdefault(place, []).append(worker)
    for rectangle, places in rectangles.items():
        yield _Tile(*rectangle, tuple(tuple(places[place]) for place in sorted(places)))


def _extent(lo: list[int], hi: list[int], shape: Shape, dim: int | None) -> tuple[float, float]:
    """Where a region begins along one side of the square, and how long it is there."""
    if dim is None or not shape[dim]:
        return 0.0, SIDE
    return SIDE * lo[dim] / shape[dim], SIDE * (hi[dim] - lo[dim]) / shape[dim]


def _outline(left: float, top: float, width: float, height: float) -> str:
    return f"M{left:.4g} {top:.4g}h{width:.4g}v{height:.4g}h{-width:.4g}z"


def _numbers(parts: list[_Part]) -> Iterator[Markup]:
    """The number of the worker in each part that has room for it."""
    texts: dict[bool, list[Markup]] = {}
    for part in parts:
        size = min(part.width / (1 if part.worker < 10 else 1.4), part.height, 11.0)
        if size >= _LEAST_FOR_TEXT:
            middle, base = part.left + part.width / 2, part.top + part.height / 2 + size * 0.33
            is_light = part.worker % len(PALETTE) in _LIGHT_TEXT
            texts.setdefault(is_light, []).append(
                element("text", part.worker, x=round(middle, 1), y=round(base, 1), font_size=round(size * 0.9, 1))
            )
    for is_light, numbers in texts.items():
        yield element("g", *numbers, fill="#FFF" if is_light else "#000", text_anchor="middle")
