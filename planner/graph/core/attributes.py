"""An op's attributes, by type."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from planner.errors import UnsupportedError
from planner.graph.core.model import Attribute, Op, of_types
from planner.graph.core.traits import DRAWING, RANDOM


def label(op: Op) -> str:
    """The name of an op in errors."""
    return f"op {op.name!r} ({op.op_type})"


def refuse(op: Op, reason: str, *, hint: str = "") -> UnsupportedError:
    """The error for an op that cannot be taken; to be raised by the caller."""
    return UnsupportedError(f"{label(op)}: {reason}", hint=hint)


def attributes_of(op: Op, *names: str) -> Mapping[str, Attribute]:
    """An op's attributes by name: these, or all where none is named."""
    return {key: value for key, value in op.attributes if not names or key in names}


def integer(op: Op, name: str, default: int | None = None) -> int:
    """An integer attribute; without a default, one that the operator requires."""
    value = op.attribute(name, default)
    assert isinstance(value, int), f"{label(op)}: {name} is no integer"
    return value


def number(op: Op, name: str, default: float) -> float:
    """A real attribute."""
    value = op.attribute(name, default)
    assert isinstance(value, int | float), f"{label(op)}: {name} is no number"
    return float(value)


def text(op: Op, name: str, default: str) -> str:
    """A string attribute."""
    value = op.attribute(name, default)
    assert isinstance(value, str), f"{label(op)}: {name} is no string"
    return value


def integers(op: Op, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    """An attribute that is a list of integers; an empty one counts as absent."""
    value = op.attribute(name) or default
    assert isinstance(value, tuple), f"{label(op)}: {name} is no list"
    return tuple(int(item) for item in value)


def reduced_dims(op: Op, rank: int, value_of: Callable[[str], np.ndarray | None]) -> tuple[int, ...] | None:
    """The dims that a reduction is over, from the front; () if it hands on its input, None if that is not known."""
    axes = integers(op, "axes", ())
    if op.has_input(1):
        value = value_of(op.inputs[1])
        if value is None:
            return None
        axes = tuple(value.reshape(-1).tolist())
    if not axes and not integer(op, "noop_with_empty_axes", 0):
        return tuple(range(rank))
    return tuple(sorted({axis % rank for axis in axes}))


def draws(op: Op, value_of: Callable[[str], np.ndarray | None]) -> bool | None:
    """Whether an op draws random numbers; None of a Dropout that computes whether it trains."""
    if not of_types(op, DRAWING):
        return False
    mode = value_of(op.inputs[2]) if op.has_input(2) else np.array(op.op_type in RANDOM)
    return None if mode is None else bool(mode.item())


def axis_of(op: Op, rank: int, default: int) -> int:
    """The ``axis`` attribute, counted from the front."""
    axis = integer(op, "axis", default)
    return axis + rank if axis < 0 else axis
