"""Whether an array can be the value of a tensor of the model, and what to do where it cannot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.errors import did_you_mean
from planner.graph.model import Shape, Tensor
from planner.graph.protos import numpy_dtype


def unknown(key: str, name: str, names: Sequence[str], before: int) -> str:
    """An array that is of no input, with the one that is near; ``before``: findings that stand before it."""
    return "; ".join(filter(None, (f"{key}: no input has this name", did_you_mean(name, names, before))))


def misfit(array: np.ndarray, tensor: Tensor) -> str:
    """The reason why an array cannot be a tensor's value, or ""."""
    array = _named(array, tensor)
    if array.dtype.name != tensor.dtype.value:
        return f"is of {array.dtype.name}, the input is of {tensor.dtype.value}"
    if array.shape != tensor.shape:
        return f"has the shape {list(array.shape)}, the input has {list(tensor.shape)}"
    return ""


def conversion(key: str, array: np.ndarray, tensor: Tensor) -> str:
    """The conversion of an array of another dtype, or "": where that loses a fraction, or NumPy has no such dtype."""
    dtype, wanted = _named(array, tensor).dtype, numpy_dtype(tensor.dtype)
    if dtype.name == wanted.name or wanted.kind == "V" or not np.can_cast(dtype, wanted, "same_kind"):
        return ""
    return f"convert it: {key}.astype({tensor.dtype.value!r})"


def fewer_rows(shape: Shape, wanted: Shape) -> str:
    """The remedy for an array of too few rows, or "" if that is not its fault."""
    if not shape or len(shape) != len(wanted) or shape[1:] != wanted[1:] or not 0 < shape[0] < wanted[0]:
        return ""
    return f"give {wanted[0]:,} rows or more, or plan for fewer: tofu grad --batch {shape[0]}"


def native(array: np.ndarray, tensor: Tensor) -> np.ndarray:
    """An array that fits, in this machine's byte order."""
    native: np.ndarray = _named(array, tensor).astype(numpy_dtype(tensor.dtype), copy=False)
    return native


def _named(array: np.ndarray, tensor: Tensor) -> np.ndarray:
    """The array; as the tensor's type where it is bits, for which npz has no name (bfloat16 and what is narrower)."""
    is_bits = array.dtype == np.dtype(f"V{tensor.dtype.item_bytes}") != numpy_dtype(tensor.dtype)
    return array.view(numpy_dtype(tensor.dtype)) if is_bits else array
