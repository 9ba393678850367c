"""The output of ``tofu fit``: for people, for ``--json``, and as a page."""

from __future__ import annotations

from typing import TextIO

from planner.features.fit.result import FitAnswer, FitResult, FitRow, WhyNot
from planner.printing.console import ReportConsole
from planner.units import binary, format_bytes, format_seconds


def print_fit(result: FitResult, file: TextIO) -> None:
    """Prints the answer for each machine, and what it is read from."""
    console = ReportConsole(file)
    console.print_facts([("model", result.model), *([] if result.batch is None else [("batch", f"{result.batch:,}")])])
    for answer in result.answers:
        console.print()
        console.print_line(verdict(answer, result))
        console.print()
        console.print_table(*columns_and_rows(answer, result), is_narrow=True)
        if answer.why_not is not None:
            console.print()
            console.print_text(why_not(answer.why_not, answer, result), following=2)
    console.print()
    for note in notes(result):
        console.print_text(note, following=2)
    if result.page is not None:
        console.print_line(f"page written to {result.page}")


def verdict(answer: FitAnswer, result: FitResult) -> str:
    """The answer in one sentence."""
    where = f"with {binary(answer.memory_bytes)} each"
    if answer.topology is not None:
        where = f"of {answer.topology}, {where}"
    within = (
        "" if result.within_seconds is None else f" in at most {format_seconds(result.within_seconds)} an iteration"
    )
    if answer.workers is not None:
        gpus = "1 GPU holds" if answer.workers == 1 else f"{answer.workers:,} GPUs hold"
        return f"fits: {gpus} it{within}, {where}"
    return f"does not fit: up to {answer.rows[-1].workers:,} GPUs do not hold it{within}, {where}"


def columns_and_rows(answer: FitAnswer, result: FitResult) -> tuple[list[str], list[list[str]], list[str]]:
    """The table: heads, cells, and the heads of numbers."""
    columns: dict[str, list[str]] = {
        "GPUs": [f"{row.workers:,}" for row in answer.rows],
        "fits": ["yes" if row.fits else "no" for row in answer.rows],
        "at least": [binary(row.at_least_bytes) for row in answer.rows],
        "least found": [_least(row) for row in answer.rows],
        "plan takes": ["-" if row.plan_bytes is None else binary(row.plan_bytes) for row in answer.rows],
        **_again("least recomputes", [row.least_recompute for row in answer.rows]),
        **_again("plan recomputes", [row.recompute for row in answer.rows]),
        "moved": ["-" if row.moved_bytes is None else format_bytes(row.moved_bytes) for row in answer.rows],
    }
    if answer.topology is not None:
        times = (row.estimated_seconds for row in answer.rows)
        columns["estimated time"] = ["-" if seconds is None else format_seconds(seconds) for seconds in times]
    if result.batches is not None:
        columns["largest batch"] = [_batch(row, result.batches) for row in answer.rows]
    idle = [row.plan_workers is not None and row.plan_workers < row.workers for row in answer.rows]
    if any(idle):
        columns["plan for"] = [
            f"{row.plan_workers}" if is_idle else "" for row, is_idle in zip(answer.rows, idle, strict=True)
        ]
    heads = list(columns)
    rows = [list(cells) for cells in zip(*columns.values(), strict=True)]
    return heads, rows, [head for head in heads if head != "fits"]


def _again(head: str, recomputes: list[str | None]) -> dict[str, list[str]]:
    """Whether plans recompute; no column where none does."""
    return {head: [recompute or "-" for recompute in recomputes]} if "auto" in recomputes else {}


def _least(row: FitRow) -> str:
    if row.least_bytes is None:
        return "-"
    return f"{'' if row.is_by_program else 'about '}{binary(row.least_bytes)}"


def _batch(row: FitRow, batches: tuple[int, int]) -> str:
    if row.largest_batch is None:
        return f"below {batches[0]:,}" if batches[0] > 1 else "none"
    return f"{row.largest_batch:,}{' or more' if row.largest_batch == batches[1] else ''}"


def why_not(why: WhyNot, answer: FitAnswer, result: FitResult) -> str:
    """The reason why so many GPUs are too few."""
    row = next(row for row in answer.rows if row.workers == why.workers)
    purposes = ", ".join(f"{binary(size)} {purpose}" for purpose, size in why.purpose_bytes.items())
    reason = f"while {why.op} runs, every plan takes {binary(row.at_least_bytes)} at least on some worker: {purposes}"
    if row.fits and result.within_seconds is not None:
        seconds = "unknown" if row.estimated_seconds is None else format_seconds(row.estimated_seconds)
        return f"why not {why.workers}: the fastest plan that fits is estimated to take {seconds}"
    if row.least_bytes is not None and row.at_least_bytes <= answer.memory_bytes:
        reason = f"the smallest plan that was found takes {binary(row.least_bytes)}; {reason}"
    return f"why not {why.workers}: {reason}"


def notes(result: FitResult) -> list[str]:
    """The notes on reading the table."""
    lines = [
        "at least: no plan takes less, with any recomputation. least found: of the smallest plan. plan "
        "takes: the fastest of those that fit, or the one that costs least. A plan for fewer GPUs is one for more, so "
        "no row takes more than one above it."
    ]
    if any(not row.is_by_program and row.least_bytes is not None for answer in result.answers for row in answer.rows):
        lines.append("about: as tables add it up op by op; programs are seen to take a few percent more.")
    if any("auto" in (row.least_recompute, row.recompute) for answer in result.answers for row in answer.rows):
        lines.append(
            "recomputes: whether the smallest and the taken plan recompute activations for the backward pass, as those "
            "of `tofu plan --recompute auto` do."
        )
    if result.why_fixed:
        lines.append(f"largest batch: not looked for, since {result.why_fixed}.")
    return lines
