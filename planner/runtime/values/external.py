"""Values from a model's external data, tile by tile.

A file is opened for each tile, below the data folder, and no link is followed on the way: what is read is a regular
file inside of the folder. It is read by positions and not mapped: a file that is cut short or a disk that fails is then
an error with a name, and no signal.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from planner.algebra.region import Region, index_space
from planner.errors import ModelError
from planner.graph.external import ExternalValue, chosen_folder, external_values, stored_bits
from planner.graph.model import DType, Graph, Shape
from planner.graph.protos import numpy_dtype

HINT: Final = (
    "name their folder with --data-dir DIR, give values with --weights FILE, or have them drawn with --random-weights"
)
_LINK: Final = "is behind a link, and links are not followed"
_READ_ELEMENTS: Final = 1 << 18
"""Elements that are read at a time."""
_PAGE_ELEMENTS: Final = 1 << 10
"""Of a row that is no longer than this, all is read where a part is wanted: so much comes from the disk anyway."""


class _UnfitError(OSError):
    """A file that can be opened and is not to be read; the words follow its name."""


class ExternalData:
    """Tensors of a model whose values lie in files beside it, as a source of tiles.

    Args:
        graph: that names them.
        names: the tensors that are to be read.
        folders: where the files may be, the likeliest first; the first that has all is taken.

    Raises:
        ModelError: files are not there, are no regular files in the folder, or do not hold what the model says that
            they hold: all findings at once.
    """

    def __init__(self, graph: Graph, names: Sequence[str], folders: Sequence[Path]) -> None:
        known = external_values(graph)
        self._values = {name: known[name] for name in names if name in known}
        self._tensors = graph.tensors
        self.folder = Path()
        """The folder that is read, if anything is."""
        if not self._values:
            return
        if not folders:
            raise ModelError("weights are external data, and nothing says where", facts=tuple(names), hint=HINT)
        self.folder = chosen_folder(folders, self._values.values()).resolve()
        sizes: dict[str, int | str] = {}
        findings: list[str] = []
        for name, value in self._values.items():
            if value.location not in sizes:
                sizes[value.location] = self._size(value)
            size = sizes[value.location]
            end = value.offset + value.size_bytes
            if isinstance(size, str):
                findings.append(f"{name}: {size}")
            elif size < end:
                findings.append(
                    f"{name}: {value.location} has {size} bytes, and the tensor is at {value.offset} to {end}"
                )
        if findings:
            others = [f"not all are in {folder} either" for folder in folders if folder.resolve() != self.folder]
            raise ModelError(
                f"weights cannot be read from {self.folder}: {len(findings)} of {len(self._values)} tensors",
                facts=(*others, *findings),
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
        found = np.empty(region.shape, numpy_dtype(tensor.dtype))
        try:
            with _opened(self.folder, value.parts) as file:
                _fill(found, file, value.offset, tensor.dtype, 0, space, region)
        except OSError as error:
            file_name = self.folder / value.location
            raise ModelError(f"tensor {name!r}: {file_name} {_fault(error)}", hint=HINT) from error
        return found

    def _size(self, value: ExternalValue) -> int | str:
        """Bytes of a file, or what is wrong with it."""
        try:
            with _opened(self.folder, value.parts) as file:
                return os.fstat(file).st_size
        except OSError as error:
            return f"{value.location} {_fault(error)}"


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

        here = opened(folder, os.O_DIRECTORY)
        for part in parts[:-1]:
            _refuse_link(os.stat(part, dir_fd=here, follow_symlinks=False))
            here = opened(part, os.O_DIRECTORY | os.O_NOFOLLOW, here)
        # Looked at before it is opened, which a device may take amiss, and after, for it may be another by then.
        _require_file(os.stat(parts[-1], dir_fd=here, follow_symlinks=False))
        file = opened(parts[-1], os.O_NOFOLLOW | os.O_NONBLOCK, here)
        _require_file(os.fstat(file))
        yield file


def _is_of_link(finding: str) -> bool:
    return finding.endswith(_LINK)


def _refuse_link(status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise _UnfitError(_LINK)


def _require_file(status: os.stat_result) -> None:
    _refuse_link(status)
    if not stat.S_ISREG(status.st_mode):
        kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
        kind = next((kind for test, kind in kinds if test(status.st_mode)), "a device")
        raise _UnfitError(f"is {kind}, not a regular file")


def _fault(error: OSError) -> str:
    """What is wrong with a file, in words that follow its name."""
    if isinstance(error, FileNotFoundError):
        return "is not there"
    return str(error) if isinstance(error, _UnfitError) else f"cannot be read: {error.strerror or error}"


def _fill(target: np.ndarray, file: int, start: int, dtype: DType, first: int, space: Shape, region: Region) -> None:
    """Reads a region of an array in a file.

    Args:
        target: of the region's shape.
        file: its descriptor.
        start: where the tensor begins in the file, in bytes.
        dtype: of the tensor.
        first: where the array begins in the tensor, in elements.
        space: of the array, at least one dim.
        region: of the array.
    """
    lo, hi = region.lo[0], region.hi[0]
    inner = Region(region.lo[1:], region.hi[1:])
    row = math.prod(space[1:])
    if inner.shape == space[1:]:
        flat = target.reshape(-1)
        for done in range(0, flat.size, _READ_ELEMENTS):
            part = flat[done : done + _READ_ELEMENTS]
            part[:] = _elements(file, start, dtype, first + lo * row + done, part.size)
    elif row <= _PAGE_ELEMENTS:
        wanted = tuple(slice(*bounds) for bounds in zip(inner.lo, inner.hi, strict=True))
        rows = _READ_ELEMENTS // max(1, row)
        for index in range(lo, hi, rows):
            part = target[index - lo : index - lo + rows]
            read = _elements(file, start, dtype, first + index * row, len(part) * row)
            part[:] = read.reshape(len(part), *space[1:])[:, *wanted]
    else:
        for index in range(lo, hi):
            _fill(target[index - lo], file, start, dtype, first + index * row, space[1:], inner)


def _elements(file: int, start: int, dtype: DType, first: int, count: int) -> np.ndarray:
    """Some elements of a tensor that follow each other, as ONNX stores them: little-endian, narrow integers packed."""
    bits = stored_bits(dtype)
    lo, hi = first * bits // 8, ((first + count) * bits + 7) // 8
    raw = np.empty(hi - lo, np.uint8)
    left = raw.data
    while left:
        got = os.preadv(file, [left], start + hi - len(left))
        if not got:
            raise _UnfitError("ends before the tensor does")
        left = left[got:]
    if dtype is DType.BOOL:
        return raw.astype(np.bool_)
    if bits == 8 * dtype.item_bytes:
        return raw.view(f"<u{dtype.item_bytes}").astype(f"=u{dtype.item_bytes}", copy=False).view(numpy_dtype(dtype))
    parts = (raw[:, None] >> np.arange(0, 8, bits, dtype=np.uint8)) & ((1 << bits) - 1)
    values = parts.reshape(-1)[first - lo * 8 // bits :][:count].astype(np.int8)
    if dtype in (DType.INT4, DType.INT2):
        sign = 1 << (bits - 1)
        values = (values ^ sign) - sign
    return values.astype(numpy_dtype(dtype))
