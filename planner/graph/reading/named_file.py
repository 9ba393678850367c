"""The file that a model is named by, looked at before anything heavy is imported: commands ask here first."""

from __future__ import annotations

from pathlib import Path

from planner.errors import ModelError, near_file


def require_model(file: Path) -> None:
    """Refuses a model that is not there; what it is that is there is for ``load_model`` to say.

    Raises:
        ModelError: there is no file, and no folder either.
    """
    if not file.exists():
        raise ModelError(f"{file}: no such file", hint=near_file(file))
