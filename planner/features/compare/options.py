"""Options of ``tofu compare``."""

from __future__ import annotations

from planner.options import DimOptions, Model, argument, option, options
from planner.progress import Progress, silent
from planner.records import Positive


@options
class CompareOptions(DimOptions):
    """What ``tofu compare`` and ``planner.compare`` are asked for."""

    model: Model = argument(kw_only=False)
    gpus: Positive | None = option("How many GPUs; of a topology's, the nearest so many.", default=None, metavar="K")
    topology: str | None = option(
        "A topology file or the name of one, to estimate times for.  [default: the plan's]",
        default=None,
        metavar="FILE|NAME",
    )
    progress: Progress = silent
