"""Charts of memory: what one worker holds over its steps, by purpose, and the least memory by number of workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Final

from planner.features.report.page.charts import WIDTH
from planner.features.report.page.markup import Markup, chart, element, joined
from planner.graph.step.purposes import Purpose
from planner.partition.occupancy import Occupancy
from planner.printing.stretches import fullest_moments
from planner.units import binary

PURPOSE_FILL: Final[Mapping[Purpose, str]] = MappingProxyType(
    {
        Purpose.PARAMETERS: "#0072B2",
        Purpose.OPTIMIZER_STATE: "#56B4E9",
        Purpose.CARRIED_STATE: "#7F7FBF",
        Purpose.NEXT_STATE: "#A6CEE3",
        Purpose.DATA: "#BBBBBB",
        Purpose.CONSTANTS: "#888888",
        Purpose.ACTIVATIONS: "#E69F00",
        Purpose.AGAIN: "#F7CE7F",
        Purpose.GRADIENTS: "#D55E00",
        Purpose.RESULTS: "#F0E442",
        Purpose.FETCHED: "#009E73",
        Purpose.INSIDE: "#CC79A7",
        Purpose.GAPS: "#DDDDDD",
    }
)
"""Of Okabe and Ito's colours as far as they go; names stand in the areas and beside the amounts, too."""
_DARK: Final = frozenset({Purpose.PARAMETERS, Purpose.GRADIENTS, Purpose.FETCHED})
"""Purposes on whose colour white text is read better than black text."""
_LEFT = 80.0
_TOP = 24.0
_HEIGHT = 260.0
_BELOW = 40.0
_BINS = 240
_TOLD = 120
"""Stretches of which more is told under the pointer."""
_LEAST_SHARE = 0.01
"""Of what is held: purposes that take less are told together."""
_TICKS = 4
"""Parts into which an axis is divided."""
_LEAST_FOR_TEXT = 14.0
"""Pixels that an area is high where its name has room."""
_NAMED = 3
"""Buffers that are named of a stretch of steps."""


@dataclass(frozen=True, slots=True)
class _Scale:
    """Bytes as pixels above the axis of steps."""

    highest: int

    def height(self, amount: int) -> float:
        return _HEIGHT * amount / self.highest

    def top(self, amount: int) -> float:
        return _TOP + _HEIGHT - self.height(amount)


def occupancy_chart(occupancy: Occupancy, begins: Mapping[str, int], limit: int | None) -> Markup:
    """What a worker holds over its steps: an area for each purpose, one on the other, the peak and the limit as lines.

    Args:
        occupancy: what it holds.
        begins: by part of an iteration the step in which it begins.
        limit: the memory that the worker has; None where nothing says it. One far above is said, and not drawn.
    """
    total, count = occupancy.total_bytes, len(occupancy.held_bytes)
    moments = fullest_moments(occupancy.held_bytes, _BINS)
    is_drawn = limit is not None and limit <= 2 * total
    scale = _Scale(max(total, limit if limit is not None and is_drawn else 0, 1))
    width = (WIDTH - _LEFT) / len(moments)
    parts = [*_areas(occupancy, moments, scale, width)]
    parts.append(_line(scale.top(total), "peak", f"peak {binary(total)}", "#0072B2", "4 3"))
    if limit is not None and is_drawn:
        parts.append(_line(scale.top(limit), "limit", f"limit {binary(limit)}", "#D55E00", None))
    for line, (part, begin) in enumerate(begins.items()):
        at = _LEFT + (WIDTH - _LEFT) * begin / count
        parts.append(element("path", d=f"M{at:.1f} {_TOP:g}v{_HEIGHT + 6:g}", stroke="#888", stroke_dasharray="2 2"))
        text = f"{part} {begin:,}"
        parts.append(element("text", text, x=f"{at:.1f}", y=_TOP + _HEIGHT + 26 + 11 * line, font_size=10))
    hover_steps = fullest_moments(occupancy.held_bytes, _TOLD)
    parts += [_hover(occupancy, moment, number, len(hover_steps)) for number, moment in enumerate(hover_steps)]
    ticks = [
        (_LEFT + (WIDTH - _LEFT) * part / _TICKS, f"{(count - 1) * part // _TICKS:,}") for part in range(_TICKS + 1)
    ]
    ticks[0] = (_LEFT, "step 0")
    label = f"What worker {occupancy.worker} holds over the steps of its program"
    height = _TOP + _HEIGHT + _BELOW + 11 * max(0, len(begins) - 1)
    return chart([*_axes(scale, ticks), *parts], WIDTH, height, label)


def swatch(purpose: Purpose) -> Markup:
    """A purpose's colour, beside its name."""
    return element(
        "svg", element("rect", width=14, height=14, fill=PURPOSE_FILL[purpose]), width=14, height=14, aria_hidden="true"
    )


def _areas(occupancy: Occupancy, moments: Sequence[int], scale: _Scale, width: float) -> list[Markup]:
    """Each purpose from the axis up to where it and all below it reach; what lies below is drawn over it."""
    sums = [0] * len(moments)
    areas, names = [], []
    for purpose, amounts in occupancy.by_purpose.items():
        sizes = [int(amounts[moment]) for moment in moments]
        sums = [below + amount for below, amount in zip(sums, sizes, strict=True)]
        tops = [f"{scale.top(amount):.1f}" for amount in sums]
        runs = ((top, len(list(run))) for top, run in groupby(tops))
        path = "".join(f"V{top}h{count * width:.5g}" for top, count in runs)
        base = scale.top(0)
        fill = PURPOSE_FILL[purpose]
        areas.append(element("path", d=f"M{_LEFT:g} {base:g}{path}V{base:g}z", fill=fill, class_="area"))
        names.append(_name(purpose, [scale.height(amount) for amount in sizes], list(map(scale.top, sums)), width))
    return [*reversed(areas), *names]


def _name(purpose: Purpose, heights: Sequence[float], tops: Sequence[float], width: float) -> Markup:
    """A purpose's name in its area, in the middle of the longest run where there is room for it; else nothing."""
    length = 6.0 * len(purpose.value)
    best, start = (0, 0), 0
    for at in range(len(heights) + 1):
        if at < len(heights) and heights[at] >= _LEAST_FOR_TEXT:
            continue
        best, start = max(best, (at - start, start)), at + 1
    run, first = best
    if run * width < length:
        return Markup("")
    # A sloping area is not everywhere where its middle is: the name stands where the area is thickest within the run.
    margin = int(length / width / 2) + 1
    inner = range(first + margin, first + run - margin) or range(first + run // 2, first + run // 2 + 1)
    at = max(inner, key=lambda column: (round(heights[column]), -abs(column - first - run // 2)))
    fill = "#FFF" if purpose in _DARK else "#000"
    y = tops[at] + heights[at] / 2 + 4
    x = f"{_LEFT + at * width:.1f}"
    return element("text", purpose.value, x=x, y=f"{y:.1f}", font_size=11, text_anchor="middle", fill=fill)


def _hover(occupancy: Occupancy, moment: int, number: int, count: int) -> Markup:
    """What is told under the pointer of one of so many stretches."""
    total, width = int(occupancy.held_bytes[moment]), (WIDTH - _LEFT) / count
    amounts = sorted(occupancy.amounts(moment).items(), key=lambda item: -item[1])
    shown = [(purpose.value, size) for purpose, size in amounts if size >= total * _LEAST_SHARE]
    if remainder_bytes := total - sum(size for _, size in shown):
        shown.append(("all else", remainder_bytes))
    lines = [
        f"step {moment:,}: {binary(total)}",
        *(f"{label} {binary(size)}" for label, size in shown),
        "largest: " + ", ".join(f"{span.buffer} {binary(span.size_bytes)}" for span in occupancy.at(moment)[:_NAMED]),
    ]
    title = joined(*(joined(line, Markup("&#10;")) for line in lines[:-1]), lines[-1])
    return element(
        "rect",
        element("title", title),
        x=f"{_LEFT + number * width:.5g}",
        y=_TOP,
        width=f"{width:.4g}",
        height=_HEIGHT,
        class_="hover",
    )


def _axes(scale: _Scale, ticks: Sequence[tuple[float, str]]) -> list[Markup]:
    """Bytes on the left, and texts at places along the bottom."""
    base = scale.top(0)
    parts = [element("path", d=f"M{_LEFT:g} {_TOP:g}V{base:g}H{WIDTH:g}", stroke="#888", fill="none")]
    for part in range(_TICKS + 1):
        amount = scale.highest * part // _TICKS
        text = binary(amount) if part else "0"
        top = scale.top(amount)
        parts.append(element("path", d=f"M{_LEFT - 4:g} {top:.1f}H{_LEFT:g}", stroke="#888"))
        parts.append(element("text", text, x=_LEFT - 7, y=f"{top + 3:.1f}", font_size=10, text_anchor="end"))
    for number, (at, text) in enumerate(ticks):
        anchor = "end" if number and at > WIDTH - 20 else "start" if at < _LEFT + 1 else "middle"
        parts.append(element("path", d=f"M{at:.1f} {base:g}v4", stroke="#888"))
        parts.append(element("text", text, x=f"{at:.1f}", y=base + 15, font_size=10, text_anchor=anchor))
    return parts


def _line(top: float, kind: str, text: str, stroke: str, dash: str | None) -> Markup:
    """A level with its name above its right end."""
    fill = "#A04000" if kind == "limit" else None
    return joined(
        element(
            "path",
            d=f"M{_LEFT:g} {top:.1f}H{WIDTH:g}",
            stroke=stroke,
            stroke_width=1.5,
            stroke_dasharray=dash,
            class_=kind,
        ),
        element("text", text, x=WIDTH, y=f"{top - 4:.1f}", font_size=11, text_anchor="end", fill=fill),
    )
