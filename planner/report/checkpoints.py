"""What ``tofu checkpoint`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

from planner.report.console import ReportConsole
from planner.units import format_bytes

if TYPE_CHECKING:
    from planner.runtime.values.checkpoints import CheckpointList, CheckpointRow, ExportedCheckpoint

SCHEMA_VERSION = 1
_DIGITS = 12
"""Of a digest in a table."""


def checkpoints(result: CheckpointList, file: TextIO) -> None:
    """Prints the checkpoints of a folder."""
    console = ReportConsole(file)
    columns = ("step", "size", "states", "seed", "model", "")
    console.print_table(columns, [_row(row) for row in result.rows], columns[:4])


def _row(row: CheckpointRow) -> tuple[str, ...]:
    found = row.checkpoint
    if found is None:
        return str(row.number), format_bytes(row.size_bytes), "", "", "", row.problem
    data = found.data
    passed = "" if data is None else f", {data.items:,} rows or files by {data.per_batch:,}"
    if data is not None and data.shuffle is not None:
        passed += f", --shuffle {data.shuffle}"
    digest = found.model_digest.removeprefix("sha256:")[:_DIGITS]
    return (
        str(found.step),
        format_bytes(row.size_bytes),
        str(len(found.tensors)),
        str(found.seed),
        digest,
        f"whole{passed}",
    )


def checkpoints_json(result: CheckpointList) -> dict[str, Any]:
    """What ``tofu checkpoint show --json`` prints."""
    return {"schema_version": SCHEMA_VERSION, "checkpoints": [_row_json(row) for row in result.rows]}


def _row_json(row: CheckpointRow) -> dict[str, Any]:
    found = row.checkpoint
    return {
        "path": str(row.path),
        "step": row.number,
        "size_bytes": row.size_bytes,
        "problem": row.problem,
        "seed": None if found is None else found.seed,
        "model_digest": None if found is None else found.model_digest,
        "tensors": {}
        if found is None
        else {name: {"dtype": one.dtype.value, "shape": list(one.shape)} for name, one in found.tensors.items()},
    }


def exported(result: ExportedCheckpoint, file: TextIO) -> None:
    """Prints what was exported of a checkpoint."""
    facts = [("checkpoint", str(result.path)), ("exported", f"{len(result.names)} states, after step {result.number}")]
    facts += [("passed over", reason) for reason in result.passed_over]
    ReportConsole(file).print_facts(facts)


def exported_json(result: ExportedCheckpoint) -> dict[str, Any]:
    """What ``tofu checkpoint export --json`` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "checkpoint": str(result.path),
        "step": result.number,
        "exported": list(result.names),
        "passed_over": list(result.passed_over),
    }
