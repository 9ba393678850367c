"""The output of ``tofu compare``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TextIO

from planner.features.compare.result import Comparison, ComparisonRow
from planner.printing.console import ReportConsole
from planner.units import binary, format_bytes, format_seconds

_TO_LEAST = "to lower bound"
_ROOM_FOR_BOUNDS = 110
"""Columns from which on strategies are compared with what products and convolutions move to the least that they can."""
_WIDE_TABLE = 200
"""Columns from which on strategies are compared in one table, with all that is told of them."""


def print_comparison(result: Comparison, file: TextIO) -> None:
    """Prints the strategies of the literature beside the found plan: the fastest first where times are estimated, else
    the one that costs least.
    """
    console = ReportConsole(file)
    facts = [("model", result.model), ("workers", str(result.workers))]
    console.print_facts([*facts, *([("topology", result.topology)] if result.topology is not None else [])])
    console.print()
    planned = [row for row in result.rows if row.moved_bytes is not None]
    is_timed = all(row.estimated_seconds is not None for row in planned)

    def amount(row: ComparisonRow) -> float:
        return (row.estimated_seconds if result.objective == "time" else row.cost) or 0

    # Rows go by time wherever all plans have one, also after a search for bytes; ``amount`` is what was searched for.
    def order(row: ComparisonRow) -> tuple[bool, float]:
        return row.moved_bytes is None, (row.estimated_seconds if is_timed else row.cost) or 0

    marks = _marks(planned, is_timed)
    tofu_amount = next(amount(row) for row in result.rows if row.strategy == "tofu")
    rows: list[tuple[str, ...]] = []
    for row in sorted(result.rows, key=order):
        if row.moved_bytes is None:
            rows.append((row.strategy, "", "no plan", "", "", "", "", "", "", "", row.reason))
            continue
        sources = row.sources
        rows.append(
            (
                row.strategy,
                marks.get(row.strategy, ""),
                format_bytes(row.moved_bytes),
                f"{amount(row) / tofu_amount:.2f}" if tofu_amount else "",
                binary(row.peak_bytes or 0),
                "" if row.estimated_seconds is None else format_seconds(row.estimated_seconds),
                "" if sources is None else f"{sources.measured_ops:,} of {sources.ops:,} ops",
                format_bytes(row.excess_bytes or 0),
                "-" if row.times_the_least is None else f"{row.times_the_least:.2f}",
                "" if row.soybean_bytes is None else format_bytes(row.soybean_bytes),
                row.what,
            )
        )
    times = "time to tofu's" if result.objective == "time" else "cost to tofu's"
    costs = "moved", times, "memory per worker", "estimated time", "measured", "penalty", _TO_LEAST, "as SoyBean counts"
    columns: tuple[str, ...] = ("strategy", "best", *costs, "what it is")
    is_narrow = console.room < _WIDE_TABLE
    left_out = {
        "estimated time": result.topology is None,
        "measured": is_narrow or all(row.sources is None for row in result.rows),
        _TO_LEAST: console.room < _ROOM_FOR_BOUNDS,
        "as SoyBean counts": is_narrow,
        "what it is": is_narrow,
    }
    shown = [number for number, column in enumerate(columns) if not left_out.get(column, False)]
    heads = tuple(columns[number] for number in shown)
    cells = [tuple(row[number] for number in shown) for row in rows]
    console.print_table(heads, cells, [head for head in heads if head in costs], is_narrow=is_narrow)
    if is_narrow:
        console.print()
        console.print_paragraphs([(row[0], row[-1]) for row in rows])


def _marks(rows: Sequence[ComparisonRow], is_timed: bool) -> dict[str, str]:
    """The columns in which each strategy is best, by strategy; equally good ones share a mark."""
    marks: dict[str, list[str]] = {}

    def mark(word: str, amount: Callable[[ComparisonRow], float]) -> None:
        least = min(map(amount, rows), default=0)
        for row in rows:
            if amount(row) == least:
                marks.setdefault(row.strategy, []).append(word)

    if is_timed:
        mark("fastest", lambda row: row.estimated_seconds or 0)
    else:
        mark("cheapest", lambda row: row.cost or 0)
    mark("smallest memory", lambda row: row.peak_bytes or 0)
    return {strategy: ", ".join(words) for strategy, words in marks.items()}
