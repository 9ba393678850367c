"""Evidence in the values of a constant: forms that no training makes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

LOWEST: Final = -3e38
"""What masks hold where nothing may pass: float32's lowest number, or less."""
_ENOUGH: Final = 8
"""Elements, or equations, from which on values that fit a form do not do so by chance."""
_MOST_ROWS: Final = 64
_MOST_COLUMNS: Final = 256
_TOLERANCE: Final = 5e-3
"""Of what a float32 sine of a large angle is off by, to the largest of its column."""


def holds_lowest(array: np.ndarray) -> bool:
    """Whether a value is −inf or at most −3e38."""
    return bool(array.size) and float(np.min(array)) <= LOWEST


def is_one_value(array: np.ndarray) -> bool:
    """Whether all values are equal."""
    return bool(array.size) and bool((array == array.flat[0]).all())


def is_on_and_off(array: np.ndarray) -> bool:
    """Whether exactly two values occur, one of them 0, in an array of several dims: a mask."""
    if array.size < _ENOUGH or sum(size > 1 for size in array.shape) < 2:
        return False
    is_zero = array == 0
    nonzero = array[~is_zero]
    return 0 < nonzero.size < array.size and bool((nonzero == nonzero[0]).all())


def is_of_waves(array: np.ndarray) -> bool:
    """Whether along some dim every line is a sine or a straight line: positions, rotary tables, ALiBi.

    Such a line x has x[n-1] + x[n+1] = k x[n] with one k = 2 cos w throughout (2 for a straight one). Lines of one
    value do not count.
    """
    return any(_waves_along(array, dim) for dim in range(array.ndim) if array.shape[dim] >= 4)


def _waves_along(array: np.ndarray, dim: int) -> bool:
    rows = np.moveaxis(array, dim, 0)[:_MOST_ROWS]
    lines = rows.reshape(len(rows), -1)[:, :_MOST_COLUMNS].astype(np.float64)
    if not np.isfinite(lines).all():
        return False
    lines = lines[:, (lines != lines[0]).any(axis=0)]
    if lines.shape[1] * (len(lines) - 3) < _ENOUGH:
        return False
    middle, sides = lines[1:-1], lines[:-2] + lines[2:]
    factor = (middle * sides).sum(axis=0) / np.maximum((middle * middle).sum(axis=0), np.finfo(np.float64).tiny)
    largest = np.abs(lines).max(axis=0)
    tolerance = max(_TOLERANCE, 8 * _spacing(array.dtype))
    off = np.abs(sides - factor * middle).max(axis=0)
    return bool((np.abs(factor) <= 2 + tolerance).all() and (off <= tolerance * largest).all())


def _spacing(dtype: np.dtype[Any]) -> float:
    """Of the numbers of a dtype next to 1."""
    unit = np.ones((), dtype)
    step = 1.0
    while float((unit + np.asarray(step / 2, dtype)).astype(dtype)) > 1.0:
        step /= 2
    return step
