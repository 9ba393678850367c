"""Options of ``tofu report``."""

from __future__ import annotations

from pathlib import Path

from planner.options import FolderOptions, measured, option, options
from planner.options.plans import planned_for


@options
class ReportOptions(FolderOptions):
    """What ``tofu report`` and ``planner.report`` are asked for."""

    output: Path | None = option(
        "The page: one file, no network.", default=None, metavar="FILE.html", flags=("-o", "--output")
    )
    svg: Path | None = option("The strip of the network alone.", default=None, metavar="FILE.svg")
    trace: Path | None = option(
        "The simulated schedule, and what `tofu run --profile` measured, for ui.perfetto.dev.",
        default=None,
        metavar="FILE.json",
    )
    topology: str | None = planned_for()
    profile: Path | None = measured()
