"""npz and npy files, of which the headers are read first: nothing is allocated that a file only declares.

An npz file is a zip archive of npy files, and each of them is a header, which declares shape and dtype, and the
elements. What a header declares is held against the size of its entry, and shown to whoever wants the arrays, before
an element is read. Python objects are never loaded. The format: numpy.lib.format.
"""

from __future__ import annotations

import io
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

import numpy as np

from planner.errors import UsageError, near_file
from planner.regular_file import open_regular
from planner.runtime.values.positions import UnfitError, bytes_at

Wanted: TypeAlias = Callable[[Mapping[str, np.ndarray]], Collection[str]]
"""Which of the declared arrays are to be read; it may refuse them instead. They have a shape, a dtype and no memory."""

_MAGIC: Final = b"\x93NUMPY"
_LENGTH_BYTES: Final = {1: 2, 2: 4}
"""Of the header's length, by version of the format; the third version is for records."""
_MOST_HEADER_BYTES: Final = 10_000
"""NumPy reads no longer ones."""
_CHUNK_BYTES: Final = 1 << 20
_MOST_DEFLATED: Final = 1032
"""Deflate turns one byte into at most this many; an entry that claims more is refused."""
_HINT: Final = "write it with numpy.savez"


class _DamagedError(Exception):
    """Why an entry cannot be read, in words that follow ``it ...``."""


@dataclass(frozen=True, slots=True)
class _Header:
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_fortran: bool
    size_bytes: int
    """Of the header itself."""

    @property
    def data_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def laid_out(self, flat: np.ndarray) -> np.ndarray:
        """The elements in their shape."""
        return flat.reshape(self.shape[::-1]).transpose() if self.is_fortran else flat.reshape(self.shape)


def read_npz(path: Path, wanted: Wanted | None = None) -> dict[str, np.ndarray]:
    """The arrays of an npz file.

    Args:
        path: of the file.
        wanted: which of them; None: all.

    Raises:
        UsageError: there is no such file, it is something else or damaged, or it holds Python objects; or what
            ``wanted`` raises.
    """
    try:
        with open_regular(path) as stream:
            if _is_array(stream):
                raise UsageError(f"{path} holds one array", hint="write an npz with one array per input")
            with zipfile.ZipFile(stream) as archive:
                return _arrays(path, archive, wanted)
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist", hint=near_file(path)) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or 'the system does not say why'}") from None
    except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError):
        raise UsageError(f"{path} is not an npz file", hint=_HINT) from None


def read_npy(path: Path) -> np.ndarray:
    """The array of an npy file.

    Raises:
        UsageError: it cannot be read, is no npy file, is cut off, or holds Python objects.
    """
    try:
        with open_regular(path) as stream:
            header = _header(stream)
            stored_bytes = os.fstat(stream.fileno()).st_size - header.size_bytes
            if stored_bytes < header.data_bytes:
                raise _DamagedError(f"declares {header.data_bytes:,} bytes, and {stored_bytes:,} are there")
            raw = bytes_at(stream.fileno(), header.size_bytes, header.data_bytes)
        return header.laid_out(raw.view(header.dtype))
    except UnfitError:
        raise UsageError(f"{path} cannot be read as npy: it was cut short meanwhile") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read as npy: {error.strerror}", hint="write it with numpy.save") from None
    except _DamagedError as error:
        raise UsageError(f"{path} cannot be read as npy: it {error}", hint="write it with numpy.save") from None


def _is_array(stream: IO[bytes]) -> bool:
    try:
        _header(stream)
    except _DamagedError:
        return False
    return True


def _arrays(path: Path, archive: zipfile.ZipFile, wanted: Wanted | None) -> dict[str, np.ndarray]:
    entries: dict[str, tuple[zipfile.ZipInfo, _Header]] = {}
    damaged: list[str] = []
    for entry in archive.infolist():
        name = entry.filename.removesuffix(".npy")
        if name in entries:
            damaged.append(f"{name}: is there twice")
            continue
        try:
            entries[name] = entry, _declared(archive, entry)
        except _DamagedError as error:
            damaged.append(f"{name}: it {error}")
    if damaged:
        raise UsageError(f"{path} holds what cannot be read", facts=tuple(damaged), hint=_HINT)
    names = set(entries)
    if wanted is not None:
        names = set(wanted({name: _without_memory(header) for name, (_, header) in entries.items()}))
    arrays: dict[str, np.ndarray] = {}
    for name in [name for name in entries if name in names]:
        try:
            arrays[name] = _read(archive, *entries[name])
        except _DamagedError as error:
            damaged.append(f"{name}: it {error}")
    if damaged:
        raise UsageError(f"{path} holds what cannot be read", facts=tuple(damaged), hint=_HINT)
    return arrays


def _declared(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> _Header:
    if not entry.filename.endswith(".npy"):
        raise _DamagedError("is no array")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _DamagedError("is packed in another way than NumPy's")
    with _opened(archive, entry) as stream:
        header = _header(stream)
    total_bytes = header.size_bytes + header.data_bytes
    if total_bytes != entry.file_size or total_bytes > entry.compress_size * _MOST_DEFLATED + _CHUNK_BYTES:
        raise _DamagedError(f"declares {header.data_bytes:,} bytes, which are not there")
    return header


def _read(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, header: _Header) -> np.ndarray:
    flat = np.empty(math.prod(header.shape), header.dtype)
    memory = flat.view(np.uint8).data if flat.size else memoryview(b"")
    with _opened(archive, entry) as stream:
        try:
            stream.read(header.size_bytes)
            done = 0
            while done < len(memory):
                chunk = stream.read(min(_CHUNK_BYTES, len(memory) - done))
                if not chunk:
                    raise _DamagedError("is cut off")
                memory[done : done + len(chunk)] = chunk
                done += len(chunk)
        except _UNREADABLE:
            raise _DamagedError("is damaged") from None
    return header.laid_out(flat)


_UNREADABLE: Final = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError)
"""What zipfile raises of an entry that is damaged, or has a password."""


def _opened(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> IO[bytes]:
    try:
        return archive.open(entry)
    except _UNREADABLE:
        raise _DamagedError("is damaged, or has a password") from None


def _header(stream: IO[bytes]) -> _Header:
    try:
        lead = stream.read(len(_MAGIC) + 2)
        if len(lead) < len(_MAGIC) + 2 or not lead.startswith(_MAGIC):
            raise _DamagedError("is no array")
        width = _LENGTH_BYTES.get(lead[-2])
        if width is None:
            raise _DamagedError("is of a version of the npy format that has no plain arrays")
        stated = stream.read(width)
        length = int.from_bytes(stated, "little")
        if length > _MOST_HEADER_BYTES:
            raise _DamagedError("has a header that is too long")
        text = stream.read(length)
    except _UNREADABLE:
        raise _DamagedError("is damaged") from None
    read = np.lib.format.read_array_header_1_0 if width == 2 else np.lib.format.read_array_header_2_0
    try:
        shape, is_fortran, dtype = read(io.BytesIO(stated + text))
    except Exception:  # noqa: BLE001 -- a header is a Python literal, and fails in as many ways; MemoryError by depth
        raise _DamagedError("has a damaged header") from None
    if dtype.hasobject:
        raise _DamagedError("holds Python objects, which are never loaded")
    if dtype.fields is not None or dtype.subdtype is not None or not 0 < dtype.itemsize <= 64:
        raise _DamagedError(f"is of {str(dtype)[:60]}, and no plain array")
    if not all(type(size) is int and 0 <= size < 2**48 for size in shape) or math.prod(shape) > 2**48:
        raise _DamagedError("declares a shape that no tensor has")
    return _Header(shape, dtype, bool(is_fortran), len(lead) + width + length)


def _without_memory(header: _Header) -> np.ndarray:
    return np.broadcast_to(np.zeros((), header.dtype), header.shape)
