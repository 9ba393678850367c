"""Options of ``tofu profile``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from planner.options import DimOptions, Model, argument, libraries, option, options
from planner.progress import Progress, silent
from planner.records import Positive


@options
class ProfileOptions(DimOptions):
    """What ``tofu profile`` and ``planner.profile`` are asked for."""

    model: Model = argument(kw_only=False)
    gpus: Positive | None = option("Also parts of ops, as K workers compute them.", default=None, metavar="K")
    topology: str | None = option(
        "The same, for the workers of a topology and its plans for the least time.", default=None, metavar="FILE|NAME"
    )
    device: Literal["cpu", "cuda"] = option("What to measure on.", default="cpu", shows_default=True)
    memory: str | int | None = option(
        "What the tensors of one op may take; larger ones are not measured.  [default: half of what is free]",
        default=None,
        metavar="BYTES",
    )
    custom_ops: Sequence[Path] = libraries()
    out: Path | None = option(
        "Where to write the profile.  [default: MODEL.profile.yaml in the working directory]",
        default=None,
        metavar="FILE",
        flags=("-o", "--output"),
    )
    progress: Progress = silent
    notice: Callable[[str], None] = lambda line: None
