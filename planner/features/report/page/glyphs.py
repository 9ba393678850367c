"""A tensor as a square of tiles, each in the colour of the worker that owns it (Tofu, Figure 11).

A picture has two of the tensor's dims. Tiles that differ in another dim lie one behind the other there: they are drawn
as upright stripes of their place. A tile of one worker is flat and has its number; a tile of several is a stack of
offset sheets with a pale face and the number of replicas, ``×4``, or of partial sums, ``Σ4``. So colour is never alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from planner.algebra.region import Boxes
from planner.algebra.tiling import Tiling
from planner.features.report.page.columns import Drawn
from planner.features.report.page.markup import Markup, element, joined
from planner.graph.core.model import Shape

SIDE = 56.0
"""Of the square, in units of the picture."""
PALETTE = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#999999")
"""Colours that people with any kind of colour blindness tell apart (Okabe and Ito, 2008), with grey for black, on which
lines and numbers would not be seen. Worker 8 has worker 0's colour, and another number."""
_LIGHT_TEXT = frozenset({4, 5})
"""Colours on which white numbers are read better than black ones."""
_LEAST_FOR_TEXT = 6.5
_MOST_SHEETS = 4
"""The sheets of a stack at most; the number on its face counts all replicas."""
_OFFSET = 3.0
"""The distance of a sheet from the next."""
_INSET = 1.6
"""The margin of a stack's face; the colour of its first worker is seen there."""
_MOST_WORKERS = 64
"""Of more workers, squares would be of lines alone."""


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


def worker_key(workers: int) -> Markup:
    """Squares in the workers' colours, with their numbers, each 18 wide."""
    return joined(
        *(
            joined(
                element("rect", x=18 * worker, width=16, height=16, fill=fill),
                element("text", worker, x=18 * worker + 8, y=12, font_size=10, text_anchor="middle", fill="#000"),
            )
            for worker, fill in enumerate(PALETTE[:workers])
        )
    )


def _square(tiling: Tiling, shape: Shape, drawn: Drawn) -> Markup:
    if tiling.workers > _MOST_WORKERS:
        return joined(
            element("rect", width=SIDE, height=SIDE, fill="#EEE", stroke="#000"),
            element("text", f"{tiling.workers} workers", x=SIDE / 2, y=30, font_size=9, text_anchor="middle"),
        )
    tiles = list(_tiles(tiling.boxes(shape), shape, drawn))
    sign = "Σ" if tiling.has_partial else "×"
    fills: dict[int, str] = {}
    for tile in tiles:
        if len(tile.owners) == 1:
            fills[tile.owners[0]] = fills.get(tile.owners[0], "") + _outline(*tile.box)
    shards = (
        element("path", d=path, fill=_fill(worker), class_="shard", stroke="#000", stroke_width=0.8)
        for worker, path in fills.items()
    )
    return joined(*shards, *(part for tile in tiles for part in tile.stack()), *(tile.text(sign) for tile in tiles))


@dataclass(frozen=True, slots=True)
class _Tile:
    """A rectangle of the square, and the workers that hold it."""

    box: tuple[float, float, float, float]
    """Left, top, width, height."""
    owners: tuple[int, ...]

    def stack(self) -> Iterator[Markup]:
        """The sheets of a tile of several workers, the rearmost first, and its face."""
        count = min(len(self.owners), _MOST_SHEETS)
        if count == 1:
            return
        offset = self._offset()
        x, y, width, height = self._face()
        for behind in reversed(range(count)):
            sheet = _outline(x + behind * offset, y - behind * offset, width, height)
            yield element(
                "path", d=sheet, fill=_fill(self.owners[behind]), class_="sheet", stroke="#000", stroke_width=0.5
            )
        inset = min(_INSET, offset)
        face = _outline(x + inset, y + inset, width - 2 * inset, height - 2 * inset)
        yield element("path", d=face, fill="#FFF", class_="face")

    def text(self, sign: str) -> Markup:
        """The number of the worker, or how many hold the tile, where there is room."""
        x, y, width, height = self._face()
        text = str(self.owners[0]) if len(self.owners) == 1 else f"{sign}{len(self.owners)}"
        size = min(width / (0.3 + 0.7 * len(text)), height, 11.0 if len(self.owners) == 1 else 15.0)
        if size < _LEAST_FOR_TEXT:
            return Markup("")
        fill = "#FFF" if len(self.owners) == 1 and self.owners[0] % len(PALETTE) in _LIGHT_TEXT else "#000"
        middle, base = x + width / 2, y + height / 2 + size * 0.33
        size = round(size * 0.9, 1)
        return element(
            "text", text, x=round(middle, 1), y=round(base, 1), font_size=size, fill=fill, text_anchor="middle"
        )

    def _offset(self) -> float:
        count = min(len(self.owners), _MOST_SHEETS)
        return min(_OFFSET, *(side / (3 * count) for side in self.box[2:]))

    def _face(self) -> tuple[float, float, float, float]:
        """The foremost sheet."""
        x, y, width, height = self.box
        room = self._offset() * (min(len(self.owners), _MOST_SHEETS) - 1)
        return x, y + room, width - room, height - room


def _tiles(boxes: Boxes, shape: Shape, drawn: Drawn) -> Iterator[_Tile]:
    """The rectangles of a square, by the regions of the workers."""
    shown = [dim for dim in (drawn.down, drawn.across) if dim is not None]
    hidden = [dim for dim in range(len(shape)) if dim not in shown]
    rectangles: dict[tuple[float, float, float, float], dict[tuple[int, ...], list[int]]] = {}
    for worker, (lo, hi) in enumerate(zip(boxes.lo.tolist(), boxes.hi.tolist(), strict=True)):
        if any(start >= end for start, end in zip(lo, hi, strict=True)):
            continue  # it has nothing
        y, height = _extent(lo, hi, shape, drawn.down)
        x, width = _extent(lo, hi, shape, drawn.across)
        place = tuple(bound for dim in hidden for bound in (lo[dim], hi[dim]))
        rectangles.setdefault((x, y, width, height), {}).setdefault(place, []).append(worker)
    for (x, y, width, height), places in rectangles.items():
        stripe = width / len(places)
        for number, place in enumerate(sorted(places)):
            yield _Tile((x + number * stripe, y, stripe, height), tuple(places[place]))


def _extent(lo: list[int], hi: list[int], shape: Shape, dim: int | None) -> tuple[float, float]:
    """Where a region begins along one side of the square, and how long it is there."""
    if dim is None or not shape[dim]:
        return 0.0, SIDE
    return SIDE * lo[dim] / shape[dim], SIDE * (hi[dim] - lo[dim]) / shape[dim]


def _outline(left: float, top: float, width: float, height: float) -> str:
    return f"M{left:.4g} {top:.4g}h{width:.4g}v{height:.4g}h{-width:.4g}z"


def _fill(worker: int) -> str:
    return PALETTE[worker % len(PALETTE)]
