"""Options of ``tofu compare``."""

from __future__ import annotations

from pathlib import Path

from planner.options import Model, ModelOptions, argument, measured, option, options, rates_of
from planner.progress import Progress, silent
from planner.records import Positive


@options
class CompareOptions(ModelOptions):
    """What ``tofu compare`` and ``planner.compare`` are asked for."""

    model: Model = argument(kw_only=False)
    gpus: Positive | None = option("How many GPUs; of a topology's, the nearest so many.", default=None, metavar="K")
    topology: str | None = option(
        "A topology file or the name of one, to estimate times for.", default=None, metavar="FILE|NAME"
    )
    rates: str | None = rates_of()
    profile: Path | None = measured()
    progress: Progress = silent
