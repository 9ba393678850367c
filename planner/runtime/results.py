"""Writing files that are there as a whole or not at all: a run's results among them."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

import numpy as np

from planner.errors import UsageError


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes an npz file: whole, or not at all. Equal arrays give equal bytes.

    Raises:
        UsageError: the file cannot be written.
    """

    def write(stream: IO[bytes]) -> None:
        # Not numpy.savez: it takes names as keywords, and a tensor may be called "file".
        with zipfile.ZipFile(stream, "w") as archive:
            for name, array in arrays.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)

    write_atomically(path, write)


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file: whole, or not at all.

    Raises:
        UsageError: the file cannot be written.
    """

    def write(stream: IO[bytes]) -> None:
        stream.write(content)

    write_atomically(path, write)


def write_atomically(path: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Writes a file to a temporary name beside the target, syncs, and renames.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        with tempfile.NamedTemporaryFile(dir=path.resolve().parent, prefix=f".{path.name}.", delete=False) as stream:
            temporary = Path(stream.name)
            try:
                write(stream)
                stream.flush()
                os.fsync(stream.fileno())
                temporary.chmod(0o644)
                temporary.replace(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
