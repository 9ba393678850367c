"""Options of ``tofu fit``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from planner.options import DimOptions, Model, argument, option, options
from planner.progress import Progress, silent


@options
class FitOptions(DimOptions):
    """What ``tofu fit`` and ``planner.fit`` are asked for."""

    model: Model = argument(kw_only=False)
    memory: str | int | None = option(
        "What the tensors of a worker may take, such as 80GiB.  [default: what the topologies' devices have]",
        default=None,
        metavar="BYTES",
    )
    topology: Sequence[str] = option(
        "A topology file, or one that ships with tofu by its name; repeatable.", default=(), metavar="FILE|NAME"
    )
    gpus: str | int | Sequence[int] | None = option(
        "Numbers of GPUs: a list, or a range, of which the ends, the powers of two and what the topology's "
        "levels join are looked at.  [default: 1 to all of the topology's, or to 64]",
        default=None,
        metavar="1..64|2,4,8",
    )
    within: str | float | None = option(
        "An iteration must not be estimated to take longer than, say, 0.5s.", default=None, metavar="TIME"
    )
    batch: str | int | None = option(
        "Where the largest batch is looked for; or one number: the batch of the plans.  [default: 1..512]",
        default=None,
        metavar="1..512|N",
    )
    page: Path | None = option(
        "Write the table and a chart, memory against GPUs, as a page.",
        default=None,
        metavar="FILE.html",
        flags=("-o", "--output"),
    )
    progress: Progress = silent
