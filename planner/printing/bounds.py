"""The moved bytes of products and convolutions beside their lower bounds, as a table."""

from __future__ import annotations

from collections.abc import Iterable

from planner.cost.distance import Distance
from planner.printing.console import ReportConsole
from planner.results import OpMemory
from planner.units import binary, format_bytes

_ROOM_FOR_HEADS = 110
"""Columns from which on heads stand in a line."""


def bounds(console: ReportConsole, distances: Iterable[Distance]) -> None:
    """Prints the moved bytes of ops beside their lower bounds; the largest ratio first."""
    rows = [
        (
            format_bytes(row.moved_bytes),
            "-" if row.as_it_lies_bytes is None else format_bytes(row.as_it_lies_bytes),
            "-" if row.any_bytes is None else format_bytes(row.any_bytes),
            "-" if row.excess is None else f"{row.excess:.2f}",
            row.regime or "-",
            "-" if row.grid_bytes is None else format_bytes(row.grid_bytes),
            " ".join(f"{name}/{ways}" for name, ways in row.grid.items()) or "-",
            f"{row.op} ({row.op_type})",
        )
        for row in sorted(distances, key=lambda row: (-(row.excess or 0), -row.moved_bytes, row.op))
    ]
    if not rows:
        console.print_line("no op sums products of two inputs, so no lower bound applies")
        return
    # The names last: they alone are of any length.
    columns = ("moved", "bound as tiled", "lower bound", "ratio", "regime", "on a grid", "grid", "op")
    console.print_table(columns, rows, (*columns[:4], "on a grid"), is_narrow=console.room < _ROOM_FOR_HEADS)
    console.print()
    console.print_text(
        "bound as tiled: no schedule moves less with the plan's tilings; lower bound: with any tilings, each element "
        "in one place; ratio: moved bytes to the larger bound that holds; on a grid: on the best processor grid. "
        "Bounds of ops do not add up to a bound of a step."
    )


def op_memory(console: ReportConsole, ops: Iterable[OpMemory]) -> None:
    """Prints the memory of ops at once and in steps."""
    rows = [
        (
            row.op,
            binary(row.at_once_bytes),
            "-" if row.in_steps_bytes is None else binary(row.in_steps_bytes),
            f"{row.count} along {row.variable}" if row.count else "-",
            "in steps" if row.is_stepped else "at once",
        )
        for row in ops
    ]
    if rows:
        console.print()
        columns = ("memory for the op", "at once", "in steps", "steps", "in this plan")
        console.print_table(columns, rows, columns[1:3])
