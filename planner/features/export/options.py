"""What ``tofu export`` is asked for."""

from __future__ import annotations

from planner.options import AnyPath, argument, option, options, own_ops
from planner.progress import Progress, silent


@options
class ExportOptions:
    """What ``tofu export`` and ``planner.features.export`` are asked for."""

    directory: AnyPath | None = argument(kw_only=False, default=None)
    jax: AnyPath | None = option(
        "Write the step in JAX, which moves what the plan says.", default=None, metavar="FILE.py"
    )
    placements: AnyPath | None = option(
        "Write the tilings as placements of PyTorch's DTensor.", default=None, metavar="FILE.py"
    )
    opdefs: AnyPath | None = own_ops()
    progress: Progress = silent
