"""Writing a run's results."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from planner.errors import UsageError


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays as an npz file: whole, or not at all.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        with tempfile.NamedTemporaryFile(dir=path.resolve().parent, prefix=f".{path.name}.", delete=False) as file:
            try:
                np.savez(file, **{name: np.asarray(array) for name, array in arrays.items()})  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
                os.chmod(file.name, 0o644)
                os.replace(file.name, path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
