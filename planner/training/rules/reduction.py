"""Gradient rules of reductions."""

from __future__ import annotations

import math

from planner.graph.model import Op
from planner.training.attributes import integer, integers, refuse
from planner.training.autodiff import Backward, Contributions, gradient
from planner.training.builder import Builder


def reduced_axes(emit: Builder, op: Op) -> tuple[int, ...]:
    """The dims that a reduction reduces, counted from the front; () if it hands on its input.

    Raises:
        UnsupportedError: the axes are not a known constant.
    """
    rank = emit.rank(op.inputs[0])
    axes = integers(op, "axes", ())
    if len(op.inputs) > 1 and op.inputs[1]:
        value = emit.value(op.inputs[1])
        if value is None:
            raise refuse(op, "its axes are not a known constant")
        axes = tuple(int(axis) for axis in value)
    if not axes:
        return () if integer(op, "noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted(axis + rank if axis < 0 else axis for axis in axes))


def _with_kept_dims(context: Backward, x: str, axes: tuple[int, ...]) -> str:
    return x if integer(context.op, "keepdims", 1) else context.builder.unsqueeze(x, axes)


@gradient("ReduceSum", inputs=(0,))
def reduce_sum(context: Backward) -> Contributions:
    """For y = Σ x: dx = dy, repeated."""
    emit = context.builder
    axes = reduced_axes(emit, context.op)
    return [emit.expand(_with_kept_dims(context, context.dy, axes), emit.shape(context.x))]


@gradient("ReduceMean", inputs=(0,))
def reduce_mean(context: Backward) -> Contributions:
    """For y = Σ x / n: dx = dy / n, repeated."""
    emit = context.builder
    axes = reduced_axes(emit, context.op)
    count = math.prod(emit.shape(context.x)[axis] for axis in axes)
    share = emit.scale(context.dy, 1.0 / count)
    return [emit.expand(_with_kept_dims(context, share, axes), emit.shape(context.x))]


@gradient("ReduceMax", "ReduceMin", inputs=(0,))
def reduce_extremum(context: Backward) -> Contributions:
    """For y = max x or min x: dy in equal shares to the elements that are y (as PyTorch's amax does)."""
    emit = context.builder
    axes = reduced_axes(emit, context.op)
    y, dy = (_with_kept_dims(context, name, axes) for name in (context.y, context.dy))
    hit = emit.cast(emit.compare("Equal", context.x, y), emit.dtype(dy))
    share = emit.div(dy, emit.reduce_sum(hit, axes, keepdims=True))
    return [emit.mul(hit, share)]
