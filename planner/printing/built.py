"""The output of ``tofu build``."""

from __future__ import annotations

from typing import TextIO

from planner.printing.console import ReportConsole
from planner.results import BuildResult
from planner.units import format_bytes


def print_build(result: BuildResult, file: TextIO) -> None:
    """Prints the files that were written."""
    ReportConsole(file).print_facts(
        [
            ("model", result.model),
            ("workers", f"{result.workers:,}, {result.functions:,} functions"),
            ("written to", f"{result.directory}: {format_bytes(result.model_bytes)} of models"),
        ]
    )
