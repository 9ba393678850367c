"""Reductions that end in a function of the total: its argument can be joined from parts, the result cannot."""

from __future__ import annotations

from planner.graph.core.attributes import reduced_dims
from planner.graph.core.emitter import Emitter
from planner.graph.core.model import DType, Op
from planner.graph.decompositions.registry import Purpose, stands_for


def _shaped(emitter: Emitter, op: Op, value: str) -> tuple[str, ...]:
    """The result without the dims of size 1 where the op does not keep them."""
    return (emitter.reshape(value, emitter.shape(op.outputs[0]), "shaped"),)


@stands_for("ReduceL2", purpose=Purpose.PARTS)
def reduce_l2(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """The square root of the sum of squares."""
    axes = reduced_dims(op, emitter.rank(op.inputs[0]), emitter.value)
    if not axes or not emitter.dtype(op.inputs[0]).is_float:
        return None
    total = emitter.reduce("ReduceSumSquare", op.inputs[0], axes, "power")
    return _shaped(emitter, op, emitter.each("Sqrt", "root", total))


@stands_for("ReduceLogSum", purpose=Purpose.PARTS)
def reduce_log_sum(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """The logarithm of the sum."""
    axes = reduced_dims(op, emitter.rank(op.inputs[0]), emitter.value)
    if not axes or not emitter.dtype(op.inputs[0]).is_float:
        return None
    return _shaped(emitter, op, emitter.each("Log", "log", emitter.reduce("ReduceSum", op.inputs[0], axes, "sum")))


@stands_for("ReduceLogSumExp", purpose=Purpose.PARTS)
def reduce_log_sum_exp(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """The logarithm of the sum of exponentials, the maximum taken out; an infinite one is left in."""
    axes, x = reduced_dims(op, emitter.rank(op.inputs[0]), emitter.value), op.inputs[0]
    if not axes or not emitter.dtype(x).is_float:
        return None
    top = emitter.reduce("ReduceMax", x, axes, "max")
    infinite = emitter.each("IsInf", "is_infinite", top, dtype=DType.BOOL)
    shift = emitter.each("Where", "shift", infinite, emitter.scalar(0.0, emitter.dtype(x), "zero"), top)
    raised = emitter.each("Exp", "exp", emitter.each("Sub", "shifted", x, shift))
    log = emitter.each("Log", "log", emitter.reduce("ReduceSum", raised, axes, "sum"))
    return _shaped(emitter, op, emitter.each("Add", "total", log, shift))
