"""The output of ``tofu checkpoint``."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from planner.printing.console import ReportConsole
from planner.units import format_bytes

if TYPE_CHECKING:
    from planner.features.checkpoint.checkpoints import CheckpointList, CheckpointRow, ExportedCheckpoint

_DIGITS = 12
"""Of a digest in a table."""


def checkpoints(result: CheckpointList, file: TextIO) -> None:
    """Prints the checkpoints of a folder."""
    console = ReportConsole(file)
    columns = ("step", "size", "states", "seed", "model", "")
    console.print_table(columns, [_row(row) for row in result.rows], columns[:4])


def _row(row: CheckpointRow) -> tuple[str, ...]:
    checkpoint = row.checkpoint
    if checkpoint is None:
        return str(row.number), format_bytes(row.size_bytes), "", "", "", row.problem
    data = checkpoint.data
    passed = "" if data is None else f", {data.items:,} rows or files by {data.per_batch:,}"
    if data is not None and data.shuffle is not None:
        passed += f", --shuffle {data.shuffle}"
    digest = checkpoint.model_digest.removeprefix("sha256:")[:_DIGITS]
    return (
        str(checkpoint.step),
        format_bytes(row.size_bytes),
        str(len(checkpoint.tensors)),
        str(checkpoint.seed),
        digest,
        f"whole{passed}",
    )


def export(result: ExportedCheckpoint, file: TextIO) -> None:
    """Prints what was exported of a checkpoint."""
    facts = [("checkpoint", str(result.path)), ("exported", f"{len(result.names)} states, after step {result.number}")]
    facts += [("passed over", reason) for reason in result.passed_over]
    ReportConsole(file).print_facts(facts)
