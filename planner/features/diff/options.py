"""What ``tofu diff`` is asked for."""

from __future__ import annotations

from planner.options import AnyPath, argument, options, own_ops
from planner.progress import Progress, silent


@options
class DiffOptions:
    """What ``tofu diff`` and ``planner.diff`` are asked for."""

    a: AnyPath = argument(kw_only=False)
    b: AnyPath = argument(kw_only=False)
    opdefs: AnyPath | None = own_ops()
    progress: Progress = silent
