"""Options of ``tofu report``."""

from __future__ import annotations

from pathlib import Path

from planner.options import FolderOptions, options


@options
class ReportOptions(FolderOptions):
    """What ``tofu report`` and ``planner.report`` are asked for."""

    output: Path | None = None
    svg: Path | None = None
    trace: Path | None = None
