"""Options of ``tofu export``."""

from __future__ import annotations

from pathlib import Path

from planner.options import FolderOptions, options


@options
class ExportOptions(FolderOptions):
    """What ``tofu export`` and ``planner.features.export`` are asked for."""

    jax: Path | None = None
    placements: Path | None = None
    sharding: Path | None = None
