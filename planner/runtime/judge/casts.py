"""Casts to 8-bit floating point in the reference: they keep 2 or 3 bits, and say what becomes of what is too large.

Other casts to floating point are left out of a float64 twin, for they only round. These decide: beyond the largest
number stands that number, or, with ``saturate=0``, infinity or NaN (ONNX, Cast, tables of float 8).
"""

from __future__ import annotations

from typing import Final

import ml_dtypes
import numpy as np

from planner.graph.core.model import DType

EIGHT_BITS: Final = frozenset({DType.FLOAT8E4M3FN, DType.FLOAT8E4M3FNUZ, DType.FLOAT8E5M2, DType.FLOAT8E5M2FNUZ})
"""Those whose rounding is to the nearest, ties to even; ``FLOAT8E8M0`` rounds as an attribute says."""


def cast_to_eight_bits(array: np.ndarray, dtype: DType, *, saturates: bool) -> np.ndarray:
    """The numbers, in float64, that an array becomes.

    Args:
        array: of numbers.
        dtype: one of ``EIGHT_BITS``.
        saturates: the attribute ``saturate``.
    """
    wide = array.astype(np.float64)
    if saturates:
        largest = float(ml_dtypes.finfo(dtype.array_dtype).max)  # type: ignore[no-untyped-call]
        wide = np.clip(wide, -largest, largest)  # NaN stays NaN
    with np.errstate(all="ignore"):
        return wide.astype(dtype.array_dtype).astype(np.float64)
