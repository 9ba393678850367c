"""The output of ``tofu export``."""

from __future__ import annotations

from typing import TextIO

from planner.features.export.result import ExportResult
from planner.printable import some
from planner.printing.console import ReportConsole
from planner.units import format_bytes


def print_export(result: ExportResult, file: TextIO) -> None:
    """Prints what was written."""
    console = ReportConsole(file)
    facts = [
        ("model", result.model),
        ("workers", f"{result.workers} (cuts: {' x '.join(map(str, result.cuts)) or '1'})"),
        ("plan moves", f"{format_bytes(result.predicted_bytes)} per step, all workers together"),
    ]
    if result.jax is not None and result.moved_bytes is not None:
        extra_bytes = result.moved_bytes - result.predicted_bytes
        facts += [
            ("step in JAX", str(result.jax)),
            ("it moves", f"{format_bytes(result.moved_bytes)}, {f'{extra_bytes:+,} B' if extra_bytes else 'the same'}"),
            ("ops", f"{result.ops}, written as {result.functions} functions and {result.blocks} blocks"),
        ]
        if result.constants is not None:
            facts.append(("constants", str(result.constants)))
        if result.padded:
            facts.append(
                ("filled up", f"{some(result.padded)}: {format_bytes(result.padding_bytes or 0)} on all workers")
            )
        facts += [("note", note) for note in result.notes]
    if result.placements is not None:
        facts += [("placements", str(result.placements)), ("tensors", str(result.tensors))]
        if result.uneven:
            facts.append(("divided otherwise", f"{some(result.uneven)}: DTensor's chunks are of one size"))
    if result.sharding is not None:
        facts.append(("annotated model", str(result.sharding)))
    console.print_facts(facts)
