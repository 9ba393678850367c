"""What ``tofu report`` is asked for."""

from __future__ import annotations

from planner.options import AnyPath, argument, measured, option, options, own_ops
from planner.options.plans import planned_for
from planner.progress import Progress, silent


@options
class ReportOptions:
    """What ``tofu report`` and ``planner.report`` are asked for."""

    directory: AnyPath | None = argument(kw_only=False, default=None)
    output: AnyPath | None = option(
        "The page: one file, no network.", default=None, metavar="FILE.html", flags=("-o", "--output")
    )
    svg: AnyPath | None = option("The strip of the network alone.", default=None, metavar="FILE.svg")
    trace: AnyPath | None = option(
        "The simulated schedule, and what `tofu run --profile` measured, for ui.perfetto.dev.",
        default=None,
        metavar="FILE.json",
    )
    topology: str | None = planned_for()
    profile: AnyPath | None = measured()
    opdefs: AnyPath | None = own_ops()
    progress: Progress = silent
