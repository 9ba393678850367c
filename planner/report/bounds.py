"""How far products and convolutions are from the least that they can move, as a table."""

from __future__ import annotations

from collections.abc import Iterable

from planner.cost.distance import Distance
from planner.report.console import ReportConsole
from planner.units import format_bytes


def bounds(console: ReportConsole, distances: Iterable[Distance]) -> None:
    """Prints how far ops are from the least that they can move; the farthest first."""
    rows = [
        (
            row.op,
            row.op_type,
            format_bytes(row.moved_bytes),
            "-" if row.as_it_lies_bytes is None else format_bytes(row.as_it_lies_bytes),
            "-" if row.any_bytes is None else format_bytes(row.any_bytes),
            "-" if row.excess is None else f"{row.excess:.2f}",
            row.regime or "-",
            "-" if row.grid_bytes is None else format_bytes(row.grid_bytes),
            " ".join(f"{name}/{ways}" for name, ways in row.grid.items()) or "-",
        )
        for row in sorted(distances, key=lambda row: (-(row.excess or 0), -row.moved_bytes, row.op))
    ]
    if not rows:
        console.print_line("no op sums products of two inputs: there is nothing to be bounded")
        return
    columns = ("op", "type", "moves", "least as it lies", "least", "times", "regime", "on a grid", "grid")
    console.print_table(columns, rows, columns[2:6] + columns[7:8])
    console.print()
    console.print_text(
        "least as it lies: of any schedule, where the plan has the tensors; least: however they are spread, each "
        "element in one place; times: what moves, by the larger of these that holds of the plan; on a grid: on the "
        "best processor grid. Bounds of ops do not add up to one of an iteration."
    )
