"""Gradient rules of Softmax and LogSoftmax."""

from __future__ import annotations

from planner.graph.core.attributes import axis_of
from planner.training.gradients.autodiff import Backward, Contributions, gradient


@gradient("Softmax")
def softmax(context: Backward) -> Contributions:
    """For y the softmax of x along ``axis``: dx = y (dy - Σ dy y)."""
    emit, y = context.builder, context.y
    axis = axis_of(context.op, emit.rank(y), -1)
    total = emit.reduce_sum(emit.mul(context.dy, y), [axis], keepdims=True)
    return [emit.mul(y, emit.sub(context.dy, total))]


@gradient("LogSoftmax")
def log_softmax(context: Backward) -> Contributions:
    """For y = log softmax(x) along ``axis``: dx = dy - eʸ Σ dy."""
    emit, y = context.builder, context.y
    axis = axis_of(context.op, emit.rank(y), -1)
    total = emit.reduce_sum(context.dy, [axis], keepdims=True)
    return [emit.sub(context.dy, emit.mul(emit.unary("Exp", y), total))]
