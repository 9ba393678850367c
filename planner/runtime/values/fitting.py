"""Whether an array can be the value of a tensor of the model, and what to do where it cannot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.errors import did_you_mean
from planner.graph.core.model import Shape, Tensor


def unknown(key: str, name: str, names: Sequence[str], before: int) -> str:
    """An array that is of no input, with the one that is near; ``before``: findings that stand before it."""
    return "; ".join(filter(None, (f"{key}: no input has this name", did_you_mean(name, names, before))))


def misfit(array: np.ndarray, tensor: Tensor) -> str:
    """The reason why an array cannot be a tensor's value, or ""."""
    array = _named(array, tensor)
    if array.dtype.name != tensor.dtype.value and not _is_widened(array.dtype, tensor.dtype.array_dtype):
        return f"is of {array.dtype.name}, the input is of {tensor.dtype.value}"
    if array.shape != tensor.shape:
        return f"has the shape {list(array.shape)}, the input has {list(tensor.shape)}"
    return ""


def row_fault(shape: Shape, wanted: Shape) -> tuple[str, str]:
    """The fault of an array's rows and the remedy; "" where the whole shape says more, or no remedy is known."""
    if shape and shape == wanted[1:]:
        return "", f"this is one row: give {wanted[0]:,} or more"
    if shape == wanted or len(shape) != len(wanted):
        return "", ""
    if shape[1:] == wanted[1:]:
        remedy = f"give {wanted[0]:,} rows or more, or plan for fewer: tofu grad --batch {shape[0]}"
        return f"has {shape[0]:,} rows, a batch has {wanted[0]:,}", remedy if 0 < shape[0] < wanted[0] else ""
    rows, wanted_rows = list(shape[1:]), list(wanted[1:])
    if shape[0] < wanted[0]:
        return "", ""
    remedy = f"pad or cut each row to {wanted_rows}, or export the model for rows of {rows}"
    return f"has rows of {rows}, the input has rows of {wanted_rows}", remedy


def _is_widened(dtype: np.dtype, wanted: np.dtype) -> bool:
    """Whether the values of an integer type are all values of a wider one: int32 for int64."""
    return dtype.kind in "iu" and wanted.kind in "iu" and np.can_cast(dtype, wanted, "safe")


def conversion(key: str, array: np.ndarray, tensor: Tensor) -> str:
    """The conversion of an array of another dtype, or "" where NumPy has no such dtype."""
    dtype, wanted = _named(array, tensor).dtype, tensor.dtype.array_dtype
    if dtype.name == wanted.name or wanted.kind == "V" or _is_widened(dtype, wanted):
        return ""
    if not np.can_cast(dtype, wanted, "same_kind"):
        return f"give {'whole numbers of ' if wanted.kind in 'iu' else ''}{tensor.dtype.value}"
    return f"convert it: {key}.astype({tensor.dtype.value!r})"


def native(array: np.ndarray, tensor: Tensor) -> np.ndarray:
    """An array that fits, in this machine's byte order."""
    native: np.ndarray = _named(array, tensor).astype(tensor.dtype.array_dtype, copy=False)
    return native


def _named(array: np.ndarray, tensor: Tensor) -> np.ndarray:
    """The array; as the tensor's type where it is bits, for which npz has no name (bfloat16 and what is narrower)."""
    is_bits = array.dtype == np.dtype(f"V{tensor.dtype.item_bytes}") != tensor.dtype.array_dtype
    return array.view(tensor.dtype.array_dtype) if is_bits else array
