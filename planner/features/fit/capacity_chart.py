"""A chart of what a worker holds at least by number of workers, with the memory that there is as a line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from planner.features.report.page.charts import WIDTH
from planner.features.report.page.markup import Markup, element
from planner.units import binary

_LEFT: Final = 80.0
_INSET: Final = 30.0
"""Between the axes' ends and the first and last point."""
_TOP: Final = 26.0
_HEIGHT: Final = 240.0
_BELOW: Final = 40.0
_MOST_TICKS: Final = 7
_APART: Final = 30.0
"""Pixels between numbers of workers, and half of those between amounts, that are written out."""
_FITS, _LACKS, _BOUND = "#009E73", "#D55E00", "#888"


@dataclass(frozen=True, slots=True)
class CapacityPoint:
    """The facts of one number of workers."""

    workers: int
    least_bytes: int | None
    """What the leanest plan takes on a worker; None: none was looked for."""
    bound_bytes: int
    """Every plan takes so much at least on some worker; 0: nothing is known."""
    fits: bool
    remark: str = ""
    """More of it, shown under the pointer."""


@dataclass(frozen=True, slots=True)
class _Scale:
    """Both axes double from mark to mark."""

    first: float
    last: float
    """Logarithms of the numbers of workers."""
    low: int
    high: int
    """Powers of two: bytes at the ends of the upright axis."""

    def x(self, workers: int) -> float:
        share = (math.log2(workers) - self.first) / (self.last - self.first) if self.last > self.first else 0.5
        return _LEFT + _INSET + share * (WIDTH - _LEFT - 2 * _INSET)

    def y(self, amount: int) -> float:
        share = (math.log2(max(1, amount)) - self.low) / (self.high - self.low)
        return _TOP + _HEIGHT * (1 - min(1.0, max(0.0, share)))


def capacity_chart(points: Sequence[CapacityPoint], limit: int) -> Markup:
    """The least memory of a worker by number of workers: a full point where a plan fits, a hollow one where none does.

    Both axes double from mark to mark, so that what is divided evenly falls along a straight line.

    Args:
        points: by number of workers, ascending; at least one.
        limit: the memory that a worker has, in bytes.
    """
    amounts = [limit, *(point.bound_bytes for point in points), *(point.least_bytes or 0 for point in points)]
    logs = [math.log2(amount) for amount in amounts if amount > 0]
    low = math.floor(min(logs))
    high = max(low + 1, math.ceil(max(logs)))
    scale = _Scale(math.log2(points[0].workers), math.log2(points[-1].workers), low, high)
    least = [(scale.x(point.workers), scale.y(point.least_bytes)) for point in points if point.least_bytes is not None]
    bounds = [(scale.x(point.workers), scale.y(point.bound_bytes)) for point in points if point.bound_bytes]
    base, height = _TOP + _HEIGHT, _TOP + _HEIGHT + _BELOW
    return element(
        "svg",
        *_axes(scale, [point.workers for point in points]),
        _line(bounds, _BOUND, "3 3"),
        _line(least, _BOUND, None),
        element("path", d=f"M{_LEFT:g} {scale.y(limit):.1f}H{WIDTH:g}", stroke=_LACKS, stroke_width=2, class_="limit"),
        _text(f"limit {binary(limit)}", WIDTH, scale.y(limit) - 5, "end", 11, fill="#A04000"),
        *_marks(points, scale),
        _text("workers", WIDTH, base + 32, "end", 10),
        _text("full: fits; hollow: does not; broken line: no plan takes less", _LEFT, 12, "start", 11),
        viewBox=f"0 0 {WIDTH:g} {height:g}",
        width=WIDTH,
        height=height,
        role="img",
        aria_label="The least memory of a worker, by number of workers",
    )


def _axes(scale: _Scale, counts: Sequence[int]) -> list[Markup]:
    base = _TOP + _HEIGHT
    parts = [element("path", d=f"M{_LEFT:g} {_TOP:g}V{base:g}H{WIDTH:g}", stroke="#888", fill="none")]
    for power in range(scale.low, scale.high + 1, -(-(scale.high - scale.low) // _MOST_TICKS)):
        at = scale.y(2**power)
        parts.append(element("path", d=f"M{_LEFT - 4:g} {at:.1f}H{_LEFT:g}", stroke="#888"))
        parts.append(_text(binary(2**power), _LEFT - 7, at + 3, "end", 10))
    written = -math.inf
    for count in counts:
        at = scale.x(count)
        parts.append(element("path", d=f"M{at:.1f} {base:g}v4", stroke="#888"))
        if at - written >= _APART:
            parts.append(_text(f"{count:,}", at, base + 16, "middle", 10))
            written = at
    return parts


def _marks(points: Sequence[CapacityPoint], scale: _Scale) -> list[Markup]:
    """A point for each number of workers, with its amount where there is room, and more under the pointer."""
    parts = []
    written = -math.inf
    first_that_fits = next((point.workers for point in points if point.fits), None)
    for point in points:
        amount = point.bound_bytes if point.least_bytes is None else point.least_bytes
        left, top = scale.x(point.workers), scale.y(amount)
        least = "no plan was looked for" if point.least_bytes is None else f"the leanest plan takes {binary(amount)}"
        lines = [
            f"{point.workers:,} workers: {least}",
            f"every plan takes {binary(point.bound_bytes)} at least",
            point.remark,
        ]
        fill = _FITS if point.fits else "transparent"  # which the pointer finds
        stroke = _FITS if point.fits else _LACKS
        title = element("title", "; ".join(filter(None, lines)))
        parts.append(element("circle", title, cx=left, cy=top, r=5, fill=fill, stroke=stroke, stroke_width=2))
        if left - written >= 2 * _APART or point.workers == first_that_fits:
            at_least = "at least " if point.least_bytes is None else ""
            # Away from the limit, and from the picture's right end.
            anchor = "end" if left > WIDTH - 2 * _APART else "start"
            aside, below = (-8 if anchor == "end" else 8), (16 if point.fits else -7)
            parts.append(_text(at_least + binary(amount), left + aside, top + below, anchor, 10))
            written = left
    return parts


def _line(places: Sequence[tuple[float, float]], stroke: str, dash: str | None) -> Markup:
    path = "".join(f"{'L' if number else 'M'}{x:.1f} {y:.1f}" for number, (x, y) in enumerate(places))
    return element("path", d=path, stroke=stroke, fill="none", stroke_dasharray=dash) if path else Markup("")


def _text(text: str, x: float, y: float, anchor: str, size: int, fill: str | None = None) -> Markup:
    where = None if anchor == "start" else anchor
    return element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", font_size=size, text_anchor=where, fill=fill)
