"""Options of ``tofu prove``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from planner.options import FolderOptions, ReadOptions, option, options


@options
class ProveOptions(FolderOptions, ReadOptions):
    """What ``tofu prove`` and ``planner.prove`` are asked for."""

    whole: Path | None = option(
        "In the place of a plan: a model, read as `tofu plan` reads it.", default=None, metavar="FILE"
    )
    parts: Sequence[Path] = option(
        "With --whole: the worker models, one of each worker.", default=(), metavar="FILE..."
    )
    program: Path | None = option(
        "With --whole: what was made of the model before it was divided, as plan.json says it.  [default: nothing]",
        default=None,
        metavar="FILE.json",
    )
    model: Path | None = option(
        "Also read this file as `tofu plan` read it, and compare it with the plan's model.",
        default=None,
        metavar="FILE",
    )
