"""Options of ``tofu prove``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from planner.options import FolderOptions, option, options


@options
class ProveOptions(FolderOptions):
    """What ``tofu prove`` and ``planner.prove`` are asked for."""

    model: Path | None = option(
        "Also read this file as `tofu plan` read it, and compare it with the plan's model; with --parts it takes the "
        "place of a plan.",
        default=None,
        metavar="FILE",
    )
    parts: Sequence[Path] = option(
        "With --model, and without a plan: the worker models, one of each worker.", default=(), metavar="FILE..."
    )
    program: Path | None = option(
        "With --parts: what was made of the model before it was divided, as plan.json says it.  [default: nothing]",
        default=None,
        metavar="FILE.json",
    )
