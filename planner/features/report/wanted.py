"""The files that a report is to write, checked before anything heavy is imported: the command asks here first."""

from __future__ import annotations

from pathlib import Path

from planner.errors import UsageError


def wanted_files(*files: Path | None) -> tuple[Path, ...]:
    """Those of a page, a picture and a trace that are to be written.

    Raises:
        UsageError: none is.
    """
    written = tuple(file for file in files if file is not None)
    if not written:
        raise UsageError(
            "report: what is to be written?",
            hint="write -o plan.html, --svg FILE or --trace FILE; in Python, output=, svg= or trace=",
        )
    return written
