"""Options of ``tofu diff``."""

from __future__ import annotations

from pathlib import Path

from planner.options import argument, options
from planner.progress import Progress, silent


@options
class DiffOptions:
    """What ``tofu diff`` and ``planner.diff`` are asked for."""

    a: Path = argument(kw_only=False)
    b: Path = argument(kw_only=False)
    progress: Progress = silent
