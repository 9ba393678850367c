"""Searches for an extreme as two reductions: the extreme, and of the places where it stands the least or the largest.

Cut along the dim that is searched, every worker reduces its own part; what then moves are extremes and places.
"""

from __future__ import annotations

import numpy as np

from planner.graph.core.emitter import Emitter
from planner.graph.core.model import DType, Op
from planner.graph.decompositions.parts.softmax import axis_of
from planner.graph.decompositions.registry import Purpose, stands_for

_FEW_POSITIONS = 32
"""Along a dim of no more elements than this no extreme is searched in parts: windows of a pool's gradient are such."""
_COMPARED = (DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16, DType.INT32, DType.INT64)
"""Dtypes that the runtime compares and reduces, those of 16 bits by way of float32."""


@stands_for("ArgMax", purpose=Purpose.PARTS)
def arg_max(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """The first place of the maximum, or the last: of the places where it stands the least, or the largest."""
    return _place(emitter, op, "ReduceMax")


@stands_for("ArgMin", purpose=Purpose.PARTS)
def arg_min(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """The first place of the minimum, or the last."""
    return _place(emitter, op, "ReduceMin")


@stands_for("Hardmax", purpose=Purpose.PARTS)
def hardmax(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """1 at the first place of the maximum, 0 elsewhere (opset 13 and later); all 0 where no number is the maximum."""
    axis, dtype = axis_of(emitter, op, -1), emitter.dtype(op.inputs[0])
    if emitter.opset < 13 or not _is_searched(emitter, op, axis):
        return None
    first, line, _ = _index(emitter, op, axis, "ReduceMax", is_last=False, keepdims=True)
    return (emitter.cast(emitter.each("Equal", "is_first", line, first, dtype=DType.BOOL), dtype, "hardmax"),)


def _place(emitter: Emitter, op: Op, extreme: str) -> tuple[str, ...] | None:
    axis = axis_of(emitter, op, 0)
    if not _is_searched(emitter, op, axis):
        return None
    is_last, keepdims = bool(op.attribute("select_last_index", 0)), bool(op.attribute("keepdims", 1))
    place, _, count = _index(emitter, op, axis, extreme, is_last=is_last, keepdims=keepdims)
    # Where numbers are none (NaN), no element is the extreme; a place within the dim it is all the same.
    border = emitter.constant(np.array(0 if is_last else count - 1), "border")
    return (emitter.each("Max" if is_last else "Min", "place", place, border),)


def _is_searched(emitter: Emitter, op: Op, axis: int) -> bool:
    """Whether an op's dim is long enough to be searched in parts, and its elements are compared."""
    x = op.inputs[0]
    return emitter.shape(x)[axis] > _FEW_POSITIONS and emitter.dtype(x) in _COMPARED


def _index(emitter: Emitter, op: Op, axis: int, extreme: str, *, is_last: bool, keepdims: bool) -> tuple[str, str, int]:
    """The place of an extreme, all places along the dim, and how many there are.

    The place is before the first (``is_last``) or after the last one where no element equals the extreme.
    """
    x = op.inputs[0]
    shape = emitter.shape(x)
    count = shape[axis]
    hit = emitter.each("Equal", "is_extreme", x, emitter.reduce(extreme, x, (axis,), "extreme"), dtype=DType.BOOL)
    line = emitter.constant(np.arange(count, dtype=np.int64).reshape(count, *(1 for _ in shape[axis + 1 :])), "line")
    nowhere = emitter.constant(np.array(-1 if is_last else count), "nowhere")
    places = emitter.each("Where", "places", hit, line, nowhere)
    place = emitter.reduce("ReduceMax" if is_last else "ReduceMin", places, (axis,), "found", keepdims=keepdims)
    return place, line, count
