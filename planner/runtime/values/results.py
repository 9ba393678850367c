"""Writing a run's results."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from planner.whole import whole_file


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes an npz file: whole, or not at all. Equal arrays give equal bytes.

    Raises:
        UsageError: the file cannot be written.
    """
    # Not numpy.savez: it takes names as keywords, and a tensor may be called "file".
    with whole_file(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file: whole, or not at all.

    Raises:
        UsageError: the file cannot be written.
    """
    with whole_file(path) as stream:
        stream.write(content)
