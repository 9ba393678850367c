"""Gradient rules of reductions."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from planner.graph.core.attributes import integer, reduced_dims, refuse
from planner.graph.core.builder import Builder
from planner.graph.core.model import Op
from planner.training.gradients.autodiff import Backward, Contributions, gradient

_MOST_FACTORS: Final = 128


def reduced_axes(emit: Builder, op: Op) -> tuple[int, ...]:
    """The dims that a reduction reduces, counted from the front; () if it hands on its input.

    Raises:
        UnsupportedError: the axes are not a known constant.
    """
    axes = reduced_dims(op, emit.rank(op.inputs[0]), emit.value)
    if axes is None:
        raise refuse(op, "its axes are not a known constant")
    return axes


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


@gradient("ReduceL1", inputs=(0,))
def reduce_l1(context: Backward) -> Contributions:
    """For y = Σ |x|: dx = dy sign(x), 0 at 0."""
    emit = context.builder
    dy = _with_kept_dims(context, context.dy, reduced_axes(emit, context.op))
    return [emit.mul(emit.unary("Sign", context.x), dy)]


@gradient("ReduceL2", inputs=(0,))
def reduce_l2(context: Backward) -> Contributions:
    """For y = √Σ x²: dx = dy x / y, 0 where y is 0."""
    emit = context.builder
    axes = reduced_axes(emit, context.op)
    y, dy = (_with_kept_dims(context, name, axes) for name in (context.y, context.dy))
    is_zero = emit.compare("Equal", y, emit.scalar(0.0, y))
    share = emit.where(is_zero, emit.scalar(0.0, y), emit.div(dy, emit.where(is_zero, emit.scalar(1.0, y), y)))
    return [emit.mul(context.x, share)]


@gradient("ReduceSumSquare", inputs=(0,))
def reduce_sum_square(context: Backward) -> Contributions:
    """For y = Σ x²: dx = 2 dy x."""
    emit = context.builder
    dy = _with_kept_dims(context, context.dy, reduced_axes(emit, context.op))
    return [emit.mul(context.x, emit.scale(dy, 2.0))]


@gradient("ReduceLogSumExp", inputs=(0,))
def reduce_log_sum_exp(context: Backward) -> Contributions:
    """For y = ln Σ eˣ: dx = dy e^(x - y)."""
    emit = context.builder
    axes = reduced_axes(emit, context.op)
    y, dy = (_with_kept_dims(context, name, axes) for name in (context.y, context.dy))
    return [emit.mul(dy, emit.unary("Exp", emit.sub(context.x, y)))]


@gradient("ReduceProd", inputs=(0,))
def reduce_product(context: Backward) -> Contributions:
    """For y = Π x: dx = dy times the product of the others, which is not y/x where an x is 0.

    The others' products of n elements take n² elements, so n is at most 128.
    """
    emit = context.builder
    axes = reduced_axes(emit, context.op)
    shape = emit.shape(context.x)
    if not axes:
        return [context.dy]
    outer = [dim for dim in range(len(shape)) if dim not in axes]
    count = math.prod(shape[axis] for axis in axes)
    if count > _MOST_FACTORS:
        raise refuse(context.op, f"no gradient rule for a product of {count} elements, only up to {_MOST_FACTORS}")
    order = [*outer, *axes]
    lead = tuple(shape[dim] for dim in outer)
    lines = emit.reshape(emit.transpose(context.x, order), (*lead, 1, count))
    indices = np.arange(count, dtype=np.int64)
    diagonal = emit.compare("Equal", *(emit.constant(line, f"range.{count}") for line in (indices, indices[:, None])))
    factors = emit.where(diagonal, emit.scalar(1.0, lines), lines, "others")
    axis = emit.ints([len(lead) + 1], "axes")
    products = emit.one("ReduceProd", [factors, axis], (*lead, count), emit.dtype(lines), attributes={"keepdims": 0})
    back = emit.reshape(products, (*lead, *(shape[axis] for axis in axes)))
    turned = emit.transpose(back, [order.index(dim) for dim in range(len(shape))])
    return [emit.mul(turned, _with_kept_dims(context, context.dy, axes))]
