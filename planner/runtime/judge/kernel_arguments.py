"""Arguments of a kernel in NumPy: arrays by position, attributes by name.

Descriptions and schemas were checked before, so that what a kernel needs is there and of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from planner.graph.core.model import Op

Arrays: TypeAlias = Sequence[np.ndarray | None]
"""An op's operands by position; None where an optional one is absent, which may also be left out at the end."""
Kernel: TypeAlias = Callable[[Op, Arrays], tuple[np.ndarray, ...]]


class OtherFormError(Exception):
    """A kernel in NumPy has not this form of its operator; the message says which. Somebody else computes it."""


def operand(inputs: Arrays, position: int) -> np.ndarray:
    """An operand that the operator requires."""
    array = inputs[position]
    assert array is not None, f"input {position} is absent"
    return array


def maybe(inputs: Arrays, position: int) -> np.ndarray | None:
    """An optional operand."""
    return inputs[position] if position < len(inputs) else None
