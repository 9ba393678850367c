"""The safetensors format: eight bytes of length, a JSON header, and the tensors' bytes one after the other.

Written and read with NumPy alone; no more is read of a file than what is asked for. The format:
https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from planner.algebra.region import Region, index_space
from planner.errors import UsageError
from planner.graph.core.model import DType, Shape, Tensor
from planner.regular_file import open_regular
from planner.runtime.values.positions import fault, fill_region
from planner.strict_json import JsonError, Value, parse_json
from planner.whole import whole_file

_NAMES: Final[Mapping[DType, str]] = {
    DType.FLOAT64: "F64",
    DType.FLOAT32: "F32",
    DType.FLOAT16: "F16",
    DType.BFLOAT16: "BF16",
    DType.INT64: "I64",
    DType.INT32: "I32",
    DType.INT16: "I16",
    DType.INT8: "I8",
    DType.UINT64: "U64",
    DType.UINT32: "U32",
    DType.UINT16: "U16",
    DType.UINT8: "U8",
    DType.BOOL: "BOOL",
}
_DTYPES: Final = {name: dtype for dtype, name in _NAMES.items()}
_MAX_HEADER_BYTES: Final = 25_000_000
"""The format's own limit is four times that; a header of ten thousand tensors has a few million."""
_MAX_HEADER_VALUES: Final = 1_000_000
"""Some eight for each tensor."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """The place of a tensor in a file."""

    dtype: DType
    shape: Shape
    offset: int
    """In bytes, from the beginning of the file."""


def write_safetensors(path: Path, tensors: Mapping[str, Tensor], value_of: Callable[[str], np.ndarray]) -> None:
    """Writes tensors: all of them, or no file at all. Equal tensors give equal bytes.

    Args:
        path: of the file.
        tensors: shapes and dtypes by the name to be stored.
        value_of: the value by that name; asked for one tensor at a time.

    Raises:
        UsageError: the file cannot be written.
    """
    header: dict[str, Any] = {}
    offset = 0
    for name, tensor in tensors.items():
        ends = offset + tensor.size_bytes
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, ends]}
        offset = ends
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)

    with whole_file(path) as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for name, tensor in tensors.items():
            value = np.ascontiguousarray(value_of(name), tensor.dtype.array_dtype)
            assert value.nbytes == tensor.size_bytes, f"{name!r} has {value.nbytes} bytes"
            stream.write(value.reshape(-1).view(np.uint8).data)


def read_header(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a file, by name.

    Raises:
        UsageError: it cannot be read, or is no safetensors file.
    """
    try:
        with open_regular(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            length = int.from_bytes(stream.read(8), "little")
            if not 2 <= length <= min(_MAX_HEADER_BYTES, size - 8):
                raise JsonError("its header's length is wrong")
            text = stream.read(length)
        start = 8 + length
        header = parse_json(text, most_values=_MAX_HEADER_VALUES).members()
        return {name: _entry(name, entry, start, size) for name, entry in header.items() if name != "__metadata__"}
    except OSError as error:
        raise UsageError(f"{path} cannot be read as safetensors: {error.strerror}") from None
    except JsonError as error:
        raise UsageError(f"{path} cannot be read as safetensors: {error}") from None


def read_tile(path: Path, stored: StoredTensor, region: Region) -> np.ndarray:
    """A region of a tensor of a file, of the region's shape; no more of the file is read than that needs.

    Args:
        path: of the file.
        stored: where the tensor lies.
        region: of ``index_space(stored.shape)``.

    Raises:
        UsageError: the file has changed since its header was read, or cannot be read.
    """
    tile = np.empty(region.shape, stored.dtype.array_dtype)
    if tile.size:
        try:
            with open_regular(path) as file:
                fill_region(tile, file.fileno(), stored.offset, stored.dtype, 0, index_space(stored.shape), region)
        except OSError as error:
            raise UsageError(f"{path} {fault(error)}") from None
    return tile


def _entry(name: str, entry: Value, start: int, size: int) -> StoredTensor:
    dtype = _DTYPES.get(entry["dtype"].text())
    if dtype is None:
        raise JsonError(f"tensor {name!r} is of {entry['dtype'].text()!r}")
    shape, offsets = entry["shape"].counts(), entry["data_offsets"].counts()
    wanted = Tensor(name, shape, dtype).size_bytes
    if len(offsets) != 2 or not offsets[0] <= offsets[1] <= size - start or offsets[1] - offsets[0] != wanted:
        raise JsonError(f"tensor {name!r} does not lie in the file")
    return StoredTensor(dtype, shape, start + offsets[0])
