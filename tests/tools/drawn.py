"""Arrays of standard normal numbers, the same in every run."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike


def random(shape: tuple[int, ...], seed: int = 1, dtype: DTypeLike = np.float64) -> np.ndarray:
    """An array drawn by this seed, of float64 numbers that are rounded to ``dtype``."""
    return np.asarray(np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def random32(shape: tuple[int, ...], seed: int = 1, dtype: DTypeLike = np.float32) -> np.ndarray:
    """The same, of float32 where nothing else is said."""
    return random(shape, seed, dtype)
