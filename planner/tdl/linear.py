"""Ops that add: an op of sums is the sum of the ops.

Let an op be linear in all that it reads, together: f(a + b, c + d) = f(a, c) + f(b, d). Then workers that hold
contributions to its inputs can compute theirs to its output, each for itself, and the contributions are joined
afterwards (``planner.algebra.partial``). That an op is linear is seen from its description: every output element is a
sum of elements of the inputs, some of them negated or times a number. Products of two inputs are not linear in both.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from planner.algebra.tiling import Reducer
from planner.graph.core.traits import SUMS
from planner.tdl.expr import (
    Access,
    Apply,
    At,
    FloorDiv,
    Index,
    Mod,
    Number,
    Plus,
    Reduce,
    Times,
    Value,
    Whole,
    subvalues,
)

_SUMS = SUMS | {"+", "-"}
"""Functions that add or subtract what they are given."""


class Linearity(enum.Enum):
    """The effect of an op on contributions."""

    NONE = "none"
    """They must be joined before it."""
    MOVES = "moves"
    """It may be done with each contribution apart: by so many workers, so much more work."""
    ADDS = "adds"
    """The same; and it adds, so that there is less to join afterwards. All in all, no addition is made twice."""


def linearity(values: Iterable[Value]) -> Linearity:
    """The effect of an op on contributions to its inputs.

    Args:
        values: of its outputs.
    """
    roots = tuple(values)
    if not roots or not all(map(_is_linear, roots)):
        return Linearity.NONE
    adds = any(_adds(value) for root in roots for value in subvalues(root))
    return Linearity.ADDS if adds else Linearity.MOVES


def _is_linear(value: Value) -> bool:
    match value:
        case Access(_, indices, fill):
            return not fill and all(map(_is_plain, indices))
        case Number(number):
            return number == 0
        case Apply(function, arguments) if function in (*_SUMS, "Identity", "Neg"):
            return all(map(_is_linear, arguments))
        case Apply("*", (Number(), inner)) | Apply("*" | "/", (inner, Number())):
            return _is_linear(inner)
        case Reduce(Reducer.SUM, _, body):
            return _is_linear(body)
    return False


def _adds(value: Value) -> bool:
    match value:
        case Apply(function, arguments) if function in _SUMS:
            return sum(not isinstance(argument, Number) for argument in arguments) > 1
        case Reduce():
            return True
    return False


def _is_plain(index: Index) -> bool:
    """Whether an index names one place, and the data have no say in it."""
    match index:
        case Whole() | At():
            return False
        case Plus(left, right):
            return _is_plain(left) and _is_plain(right)
        case Times(inner, _) | FloorDiv(inner, _) | Mod(inner, _):
            return _is_plain(inner)
    return True
