"""Options of ``tofu export``."""

from __future__ import annotations

from pathlib import Path

from planner.options import FolderOptions, option, options


@options
class ExportOptions(FolderOptions):
    """What ``tofu export`` and ``planner.features.export`` are asked for."""

    jax: Path | None = option("Write the step in JAX, which moves what the plan says.", default=None, metavar="FILE.py")
    placements: Path | None = option(
        "Write the tilings as placements of PyTorch's DTensor.", default=None, metavar="FILE.py"
    )
