"""Places of values that a model names and does not hold: ONNX's external data. Nothing here opens a file.

A value lies in a file of the model's data folder (``data_folder.py``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath
from typing import Final

from planner.errors import ModelError
from planner.graph.core.model import DType, Graph, Shape
from planner.graph.core.notes import external_of

KEYS: Final = ("location", "offset", "length")
"""What is read of ONNX's keys; ``checksum`` is of a whole file, which nobody need read."""
_NUMBER: Final = re.compile("[0-9]{1,18}")
_PACKED_BITS: Final = {DType.INT4: 4, DType.UINT4: 4, DType.INT2: 2, DType.UINT2: 2}


@dataclass(frozen=True, slots=True)
class ExternalValue:
    """The place of a tensor's bytes."""

    location: str
    """Path of the file, from the data folder."""
    offset: int
    """In bytes, from the beginning of the file."""
    size_bytes: int
    """What the tensor's shape and dtype take there."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The folders on the way, and the file."""
        return PurePosixPath(self.location).parts


def stored_bits(dtype: DType) -> int:
    """Bits of one element in a file, where several may share a byte."""
    return _PACKED_BITS.get(dtype, 8 * dtype.item_bytes)


def stored_bytes(dtype: DType, elements: int) -> int:
    """Bytes that so many elements take in a file."""
    return (elements * stored_bits(dtype) + 7) // 8


def external_value(entries: Mapping[str, str], shape: Shape, dtype: DType, owner: str) -> ExternalValue:
    """The place of a tensor's bytes, as a file states it.

    Args:
        entries: ``location``, and ``offset`` and ``length`` where they are stated: from the beginning, and as many
            bytes as the tensor needs, where they are not.
        shape: of the tensor.
        dtype: of the tensor.
        owner: how to name it in an error, e.g. ``initializer 'W'``.

    Raises:
        ModelError: no location, or one outside of the folder; numbers that are none, or do not fit the shape.
    """
    location = entries.get("location", "")
    posix, windows = PurePosixPath(location), PureWindowsPath(location)
    leaves = ".." in posix.parts + windows.parts or posix.is_absolute() or bool(windows.anchor)
    if leaves or not posix.parts or "\0" in location:
        raise ModelError(f"{owner} has its data at {location!r}, which is not inside the model's folder")
    numbers: dict[str, int] = {}
    for key in ("offset", "length"):
        text = entries.get(key, "0")
        if not _NUMBER.fullmatch(text):
            raise ModelError(f"{owner} has its data at {key} {text!r} of {location!r}, which is no number of bytes")
        numbers[key] = int(text)
    elements = 1
    for size in shape:
        elements *= size
    needed = stored_bytes(dtype, elements)
    if "length" in entries and numbers["length"] != needed:
        raise ModelError(
            f"{owner} has {numbers['length']} bytes of data in {location!r}; its shape {list(shape)} of {dtype.value} "
            f"needs {needed}"
        )
    return ExternalValue(location, numbers["offset"], needed)


def external_values(graph: Graph) -> dict[str, ExternalValue]:
    """The places of the values that a graph names and does not hold, by tensor.

    Raises:
        ModelError: what the graph's notes say does not hold.
    """
    absent = {name for name, value in {**graph.constants, **graph.initial}.items() if value is None}
    return {
        name: external_value(entries, graph.tensors[name].shape, graph.tensors[name].dtype, f"tensor {name!r}")
        for name, entries in external_of(graph.notes).items()
        if name in absent
    }
