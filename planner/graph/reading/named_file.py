"""The file that a model is named by, looked at before anything heavy is imported: commands ask here first."""

from __future__ import annotations

import os
from pathlib import Path

from planner.errors import ModelError, near_file


def names_file(name: str | os.PathLike[str]) -> bool:
    """Whether the name of a model is that of a file or folder, there or not; other names are the zoo's."""
    path = Path(name)
    return path.exists() or bool(path.suffix) or len(path.parts) > 1


def require_model(file: Path) -> None:
    """Refuses a model that is not there; what it is that is there is for ``load_model`` to say.

    Raises:
        ModelError: there is no file, and no folder either.
    """
    if not file.exists():
        raise ModelError(f"{file}: no such file", hint=near_file(file))
