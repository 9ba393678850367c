"""Values from a model's external data, tile by tile.

A file is opened for each tile, below the data folder, and no link is followed on the way: what is read is a regular
file inside of the folder, and of no other name.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from planner.algebra.region import Region, index_space
from planner.errors import ModelError
from planner.graph.core.model import Graph
from planner.graph.files.data_folder import Followed, chosen_folder
from planner.graph.files.external import ExternalValue, external_values
from planner.printable import some
from planner.regular_file import kind_fault
from planner.runtime.values.positions import UnfitError, fault, fill_region

HINT: Final = (
    "name their folder with --data-dir DIR, give values with --weights FILE, or have them drawn with --weights random"
)
_LINK: Final = "is behind a link, and links are not followed"
_HARD_LINK: Final = "is a file of several names (hard links), and links are not followed"


class ExternalData:
    """Tensors of a model whose values lie in files beside it, as a source of tiles.

    Args:
        graph: that names them.
        names: the tensors that are to be read.
        data: where the files may be; the first folder that has all is taken.

    Raises:
        ModelError: files are not there, are no regular files in the folder, or do not hold what the model says that
            they hold: all findings at once.
    """

    def __init__(self, graph: Graph, names: Sequence[str], data: Followed) -> None:
        values = external_values(graph)
        self._values = {name: values[name] for name in names if name in values}
        self._tensors = graph.tensors
        self.folder = Path()
        """The folder that is read, if anything is."""
        if not self._values:
            return
        folders = data.folders
        if not folders:
            why = "the folder that is recorded is read only if asked for" if data.refused else "nothing says where"
            raise ModelError(f"weights are external data, and {why}", facts=(*data.refused, *names), hint=HINT)
        self.folder = chosen_folder(folders, self._values.values()).resolve()
        # Every tensor is checked before the first is read, so that one error names all faults.
        sizes: dict[str, int | str] = {}
        findings: list[str] = []
        unreadable: dict[str, list[str]] = {}
        for name, value in self._values.items():
            if value.location not in sizes:
                sizes[value.location] = self._size(value)
            size = sizes[value.location]
            end = value.offset + value.size_bytes
            if isinstance(size, str):
                unreadable.setdefault(size, []).append(name)
            elif size < end:
                findings.append(
                    f"{name}: {value.location} has {size} bytes, and the tensor is at {value.offset} to {end}"
                )
        count = len(findings) + sum(map(len, unreadable.values()))
        findings += [f"{some(names)}: {why}" for why, names in unreadable.items()]
        if findings:
            remarks = [f"not all are in {folder} either" for folder in folders if folder.resolve() != self.folder]
            remarks += data.refused
            raise ModelError(
                f"weights cannot be read from {self.folder}: {count} of {len(self._values)} tensors",
                facts=(*remarks, *findings),
                hint=f"{HINT}; cp -rL copies what links point to" if any(map(_is_of_link, findings)) else HINT,
            )

    def holds(self, name: str) -> bool:
        """See ``TileSource.holds``."""
        return name in self._values

    def tile(self, name: str, region: Region) -> np.ndarray:
        """See ``TileSource.tile``.

        Raises:
            ModelError: the file has changed since it was looked at, or cannot be read.
        """
        value, tensor = self._values[name], self._tensors[name]
        space = index_space(tensor.shape)
        array = np.empty(region.shape, tensor.dtype.array_dtype)
        try:
            with _opened(self.folder, value.parts) as file:
                fill_region(array, file, value.offset, tensor.dtype, 0, space, region)
        except OSError as error:
            file_name = self.folder / value.location
            raise ModelError(f"tensor {name!r}: {file_name} {fault(error)}", hint=HINT) from error
        return array

    def _size(self, value: ExternalValue) -> int | str:
        """Bytes of a file, or what is wrong with it."""
        try:
            with _opened(self.folder, value.parts) as file:
                return os.fstat(file).st_size
        except OSError as error:
            return f"{value.location} {fault(error)}"


@contextmanager
def _opened(folder: Path, parts: Sequence[str]) -> Iterator[int]:
    """A descriptor of a regular file below a folder; opening it never waits.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    with ExitStack() as stack:

        def opened(path: str | Path, flags: int, base: int | None = None) -> int:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags, dir_fd=base)
            stack.callback(os.close, descriptor)
            return descriptor

        parent = opened(folder, os.O_DIRECTORY)
        for part in parts[:-1]:
            _refuse_link(os.stat(part, dir_fd=parent, follow_symlinks=False))
            parent = opened(part, os.O_DIRECTORY | os.O_NOFOLLOW, parent)
        # Looked at before it is opened, which a device may take amiss, and after, for it may be another by then.
        _require_file(os.stat(parts[-1], dir_fd=parent, follow_symlinks=False))
        file = opened(parts[-1], os.O_NOFOLLOW | os.O_NONBLOCK, parent)
        _require_file(os.fstat(file))
        yield file


def _is_of_link(finding: str) -> bool:
    return finding.endswith((_LINK, _HARD_LINK))


def _refuse_link(status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise UnfitError(_LINK)


def _require_file(status: os.stat_result) -> None:
    _refuse_link(status)
    if kind := kind_fault(status):
        raise UnfitError(f"is {kind}")
    if status.st_nlink > 1:
        # One of its names may be where only its owner may read: links of both kinds reach out of the folder.
        raise UnfitError(_HARD_LINK)
