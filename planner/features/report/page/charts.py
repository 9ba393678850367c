"""Charts of a page: traffic between workers, the simulated schedule. All are SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.cost.seconds.simulated import Span
from planner.features.report.page.markup import Markup, chart, element, joined
from planner.units import format_bytes, format_seconds

WIDTH = 720.0
_LEFT = 150.0
_BINS = 240
_ROW = 64.0
_BAR = 15.0
"""Height of a bar that is busy all the time."""
_MOST_CELLS = 32
_MOST_ROWS = 16
_TICKS = 4
"""Parts into which an axis is divided."""
_LONGEST_LABEL = 7
"""Characters of workers' numbers beside a row."""
PART_FILL = {"forward": "#56B4E9", "backward": "#0072B2", "update": "#009E73", "communication": "#E69F00"}
"""By part of a step."""
KIND_FILL = {"compute": "#0072B2", "transfer": "#E69F00", "synchronisation": "#CC79A7"}
"""By kind of span; each has a row of its own, too, so that colour is not alone."""


def traffic_chart(between: NDArray[np.int64]) -> Markup:
    """What each worker takes from each other one, as a square of numbers."""
    count = len(between)
    group = -(-count // _MOST_CELLS)
    starts = list(range(0, count, group))
    cells = np.add.reduceat(np.add.reduceat(between, starts, axis=0), starts, axis=1)
    size = max(20.0, min(58.0, 640.0 / len(starts)))
    largest, left, top = max(1, int(cells.max())), 60.0, 34.0
    parts = [element("text", "takes (row) from (column)", x=0, y=10, font_size=11)]
    for row, start in enumerate(starts):
        label = str(start) if group == 1 else f"{start}–{min(count, start + group) - 1}"
        parts.append(element("text", label, x=left - 6, y=top + size * (row + 0.6), font_size=10, text_anchor="end"))
        parts.append(element("text", label, x=left + size * (row + 0.5), y=top - 4, font_size=10, text_anchor="middle"))
        for column, amount in enumerate(cells[row].tolist()):
            parts.append(_cell(left + size * column, top + size * row, size, amount, largest))
    side = size * len(starts)
    return chart(parts, left + side + 2, top + side + 2, "Bytes that each worker takes from each other one")


def _cell(left: float, top: float, size: float, amount: int, largest: int) -> Markup:
    share = amount / largest
    fill = f"#{255 - round(255 * share):02X}{255 - round(141 * share):02X}{255 - round(77 * share):02X}"
    square = element("rect", x=left, y=top, width=size, height=size, fill=fill, stroke="#FFF")
    if size < 40 or not amount:
        return square
    text = "#FFF" if share > 0.55 else "#000"
    label = format_bytes(amount)
    return joined(
        square,
        element("text", label, x=left + size / 2, y=top + size / 2 + 3, font_size=9, text_anchor="middle", fill=text),
    )


def schedule_chart(spans: Sequence[Span], workers: int) -> Markup:
    """When each worker computes and fetches, as simulated; workers that are alike to a pixel share a row."""
    end = max((span.start_seconds + span.seconds for span in spans), default=0.0) or 1.0
    busy = {kind: np.zeros((workers, _BINS)) for kind in KIND_FILL}
    for span in spans:
        _add(busy[span.kind][span.worker], span.start_seconds / end * _BINS, span.seconds / end * _BINS)
    rows = _alike([_BAR * np.concatenate([kind[worker] for kind in busy.values()]) for worker in range(workers)])
    parts = []
    for number, alike in enumerate(rows[:_MOST_ROWS]):
        top = number * _ROW
        parts.append(element("text", _workers(alike), x=0, y=top + _ROW / 2 + 2, font_size=12))
        for line, (kind, fill) in enumerate(KIND_FILL.items()):
            base = top + 18 * (line + 1)
            shares = np.minimum(1, busy[kind][alike[0]])
            parts.append(element("path", d=_bars(shares, base), fill=fill))
            parts.append(element("text", kind, x=_LEFT - 4, y=base - 3, font_size=9, text_anchor="end", fill="#444"))
    ticks = [format_seconds(end * part / _TICKS) if part else "0" for part in range(_TICKS + 1)]
    return _chart([*parts, _axis(ticks, len(rows))], _ROW, "Simulated schedule, by worker", len(rows))


def _axis(ticks: Sequence[str], rows: int) -> Markup:
    """An axis below the rows, with texts at equal distances."""
    top, step = min(rows, _MOST_ROWS) * _ROW, (WIDTH - _LEFT) / (len(ticks) - 1)
    parts: list[Markup] = [element("path", d=f"M{_LEFT:g} {top:g}H{WIDTH:g}", stroke="#888")]
    for number, text in enumerate(ticks):
        at = _LEFT + number * step
        anchor = "start" if not number else "end" if number == len(ticks) - 1 else "middle"
        parts.append(element("path", d=f"M{at:g} {top:g}v4", stroke="#888"))
        parts.append(element("text", text, x=f"{at:g}", y=top + 14, font_size=10, text_anchor=anchor))
    return joined(*parts)


def _alike(heights: Sequence[NDArray[Any]]) -> list[list[int]]:
    """Workers in rows: in each row those whose heights differ from the first one's by a pixel at most."""
    rows: list[list[int]] = []
    for worker, worker_heights in enumerate(heights):
        for row in rows:
            first = heights[row[0]]
            if first.shape == worker_heights.shape and np.abs(first - worker_heights).max(initial=0) <= 1:
                row.append(worker)
                break
        else:
            rows.append([worker])
    return rows


def _add(row: NDArray[np.float64], start: float, length: float) -> None:
    """Adds to each bin the share of it that an interval covers."""
    first, last = int(start), min(len(row) - 1, int(start + length))
    if first >= len(row):
        return
    if first == last:
        row[first] += length
        return
    row[first] += first + 1 - start
    row[first + 1 : last] += 1
    row[last] += start + length - last


def _bars(shares: NDArray[np.float64], base: float) -> str:
    """Bins as high as their shares; those that follow each other and are alike in one piece."""
    step, path, at = (WIDTH - _LEFT) / len(shares), "", 0
    heights = [round(float(share) * _BAR, 1) for share in shares]
    while at < len(heights):
        end = at
        while end < len(heights) and heights[end] == heights[at]:
            end += 1
        if heights[at]:
            path += f"M{_LEFT + at * step:.5g} {base:g}v{-heights[at]:g}h{(end - at) * step:.4g}v{heights[at]:g}z"
        at = end
    return path


def _workers(workers: Sequence[int]) -> str:
    """Workers in words.

    >>> _workers([3]), _workers([0, 1, 2, 5]), _workers(list(range(0, 128, 2)))
    ('worker 3', 'workers 0–2, 5', 'workers 0, 2, 4, … (64)')
    """
    runs: list[list[int]] = []
    for worker in workers:
        if runs and runs[-1][1] == worker - 1:
            runs[-1][1] = worker
        else:
            runs.append([worker, worker])
    ranges = [str(first) if first == last else f"{first}–{last}" for first, last in runs]
    shown = [text for at, text in enumerate(ranges) if not at or len(", ".join(ranges[: at + 1])) <= _LONGEST_LABEL]
    ellipsis = f", … ({len(workers)})" if len(shown) < len(ranges) else ""
    return f"worker{'s' * (len(workers) > 1)} {', '.join(shown)}{ellipsis}"


def _chart(parts: Sequence[Markup], row: float, label: str, rows: int) -> Markup:
    height = row * min(rows, _MOST_ROWS) + 32
    hidden = rows - _MOST_ROWS
    note = element("text", f"and {hidden} more kinds of workers", x=0, y=height - 2, font_size=11) if hidden > 0 else ""
    return chart([*parts, note], WIDTH, height, label)
