"""Arrays with room for more."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.generic)


def enlarged(values: NDArray[Number], rows: int) -> NDArray[Number]:
    """Values with room for so many rows, zeros behind them: those that are never written take no memory."""
    array = np.zeros((rows, *values.shape[1:]), dtype=values.dtype)
    array[: len(values)] = values
    return array
