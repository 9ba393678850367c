"""Softmax and LogSoftmax as a maximum, a sum, and what is done to each element (ONNX, function bodies).

The maximum is subtracted before the exponential: cut along the axis, every worker subtracts the global one, so that
the parts of the sum are of one scale.
"""

from __future__ import annotations

from planner.graph.core import attributes
from planner.graph.core.emitter import Emitter
from planner.graph.core.model import Op
from planner.graph.decompositions.registry import Purpose, stands_for


def axis_of(emitter: Emitter, op: Op, default: int) -> int:
    """The ``axis`` attribute, counted from the front."""
    return attributes.axis_of(op, emitter.rank(op.inputs[0]), default)


def shifted_exponentials(emitter: Emitter, x: str, axis: int) -> tuple[str, str, str]:
    """(x - max, exp(x - max), the sum of that) along an axis; dims stay."""
    top = emitter.reduce("ReduceMax", x, (axis,), "max")
    low = emitter.each("Sub", "shifted", x, top)
    raised = emitter.each("Exp", "exp", low)
    return low, raised, emitter.reduce("ReduceSum", raised, (axis,), "sum")


def log_softmax_of(emitter: Emitter, x: str, axis: int) -> str:
    """The logarithm of the softmax: x - max - log(sum(exp(x - max)))."""
    low, _, total = shifted_exponentials(emitter, x, axis)
    return emitter.each("Sub", "log_softmax", low, emitter.each("Log", "log", total))


def softmax_of(emitter: Emitter, x: str, axis: int) -> str:
    """The softmax: exp(x - max) / sum(exp(x - max))."""
    _, raised, total = shifted_exponentials(emitter, x, axis)
    return emitter.each("Div", "softmax", raised, total)


@stands_for("Softmax", purpose=Purpose.PARTS)
def softmax(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """Softmax along one axis (opset 13 and later)."""
    if emitter.opset < 13:
        return None
    return (softmax_of(emitter, op.inputs[0], axis_of(emitter, op, -1)),)


@stands_for("LogSoftmax", purpose=Purpose.PARTS)
def log_softmax(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """LogSoftmax along one axis (opset 13 and later)."""
    if emitter.opset < 13:
        return None
    return (log_softmax_of(emitter, op.inputs[0], axis_of(emitter, op, -1)),)
