"""The chart of the simulated schedule, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.cost.seconds.simulated import Span
from planner.features.report.page.markup import Markup, chart, element
from planner.simulation.schedule import Transfer

WIDTH = 720.0
_LEFT = 150.0
_BINS = 240
_ROW = 64.0
_BAR = 15.0
"""Height of a bar that is busy all the time."""
_MOST_ROWS = 16
_TICKS = 4
"""Parts into which an axis is divided."""
_LONGEST_LABEL = 7
"""Characters of workers' numbers beside a row."""
PART_FILL = {"forward": "#56B4E9", "backward": "#0072B2", "update": "#009E73", "communication": "#E69F00"}
"""By part of a step."""
_PASSES = ("forward", "backward", "update")


def schedule_chart(
    spans: Sequence[Span], workers: int, pass_of: Mapping[str, str], transfers: Sequence[Transfer] = ()
) -> Markup:
    """A lane of computing by pass and a lane of communication for each worker, and the links' use; as simulated.

    Args:
        spans: of the workers; those that are alike to a pixel share a row.
        workers: how many.
        pass_of: forward, backward or update, by op.
        transfers: by whose level and sender links are in use.
    """
    end = max((span.start_seconds + span.seconds for span in spans), default=0.0) or 1.0
    busy = {part: np.zeros((workers, _BINS)) for part in PART_FILL}
    begins: dict[tuple[int, str], float] = {}
    for span in spans:
        part = pass_of[span.name] if span.kind == "compute" else "communication"
        _add(busy[part][span.worker], span.start_seconds / end * _BINS, span.seconds / end * _BINS)
        begins[span.worker, part] = min(span.start_seconds, begins.get((span.worker, part), end))
    links: dict[str, NDArray[np.float64]] = {}
    for transfer in transfers:
        start, seconds = transfer.start_seconds, transfer.left_seconds - transfer.start_seconds
        row = links.setdefault(transfer.level, np.zeros((workers, _BINS)))[transfer.sender]
        _add(row, start / end * _BINS, seconds / end * _BINS)
    kinds = _alike([_BAR * np.concatenate([part[worker] for part in busy.values()]) for worker in range(workers)])
    parts = []
    for number, alike in enumerate(kinds[:_MOST_ROWS]):
        top, worker = number * _ROW, alike[0]
        parts.append(element("text", _workers(alike), x=0, y=top + _ROW / 2 + 2, font_size=12))
        height = np.minimum(1, sum(busy[part][worker] for part in _PASSES))
        for part in reversed(_PASSES):  # on top of each other, from the highest
            shown = np.where(busy[part][worker] > 0, height, 0)
            parts.append(element("path", d=_bars(shown, top + 28), fill=PART_FILL[part]))
            height = np.maximum(0, height - busy[part][worker])
        parts.append(_lane("computing", top + 28))
        moving = np.minimum(1, busy["communication"][worker])
        parts += [
            _lane("communication", top + 50),
            element("path", d=_bars(moving, top + 50), fill=PART_FILL["communication"]),
        ]
        label = 0.0
        for part in _PASSES:
            if (worker, part) in begins:
                at = _LEFT + (WIDTH - _LEFT) * begins[worker, part] / end
                label = max(at + 2, label + 48)  # labels do not overlap
                parts.append(element("path", d=f"M{at:.1f} {top + 2:g}v52", stroke="#888", stroke_dasharray="2 2"))
                parts.append(element("text", part, x=label, y=top + 10, font_size=9, fill="#444"))
    bottom = min(len(kinds), _MOST_ROWS) * _ROW
    for level, used in links.items():
        bottom += 22
        parts.append(_lane(f"{level} links", bottom - 4))
        parts.append(element("path", d=_bars(np.minimum(1, used).mean(axis=0), bottom - 4), fill="#CC79A7"))
    parts.append(element("path", d=f"M{_LEFT:g} {bottom:g}H{WIDTH:g}", stroke="#888"))
    for tick in range(_TICKS + 1):
        at, anchor = _LEFT + (WIDTH - _LEFT) * tick / _TICKS, "end" if tick == _TICKS else "middle" if tick else "start"
        text = f"{1e3 * end * tick / _TICKS:.4g} ms" if tick else "0"
        parts.append(element("path", d=f"M{at:g} {bottom:g}v4", stroke="#888"))
        parts.append(element("text", text, x=f"{at:g}", y=bottom + 14, font_size=10, text_anchor=anchor))
    if (hidden := len(kinds) - _MOST_ROWS) > 0:
        parts.append(element("text", f"and {hidden} more kinds of workers", x=0, y=bottom + 28, font_size=11))
    return chart(parts, WIDTH, bottom + 32, "Simulated schedule, by worker")


def _lane(name: str, base: float) -> Markup:
    return element("text", name, x=_LEFT - 4, y=base - 3, font_size=9, text_anchor="end", fill="#444")


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
