"""Quantisation by the extremes of the data, which can be joined from those of its parts."""

from __future__ import annotations

from planner.graph.core.emitter import Emitter
from planner.graph.core.model import DType, Op
from planner.graph.decompositions.registry import Purpose, stands_for

_STEPS = 255.0
"""A byte has so many steps from its least to its greatest number."""


@stands_for("DynamicQuantizeLinear", purpose=Purpose.PARTS)
def dynamic_quantize_linear(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """Scale and zero point from the extremes of all elements and zero, then QuantizeLinear (ONNX: its function body).

    Data that are all zero have no range; then the scale is 1, as the runtime's kernel has it.
    """
    x = op.inputs[0]
    if not emitter.rank(x):
        return None
    dims = tuple(range(emitter.rank(x)))
    zero, unit = (emitter.scalar(value, DType.FLOAT32, part) for value, part in ((0.0, "zero"), (1.0, "one")))
    steps = emitter.scalar(_STEPS, DType.FLOAT32, "steps")
    low = emitter.each("Min", "low", emitter.reduce("ReduceMin", x, dims, "least", keepdims=False), zero)
    high = emitter.each("Max", "high", emitter.reduce("ReduceMax", x, dims, "greatest", keepdims=False), zero)
    flat = emitter.each("Equal", "is_flat", low, high, dtype=DType.BOOL)
    step = emitter.each("Div", "step", emitter.each("Sub", "range", high, low), steps)
    scale = emitter.each("Where", "scale", flat, unit, step)
    wanted = emitter.each("Sub", "origin", zero, emitter.each("Div", "steps_below", low, scale))
    within = emitter.each("Min", "not_above", emitter.each("Max", "not_below", wanted, zero), steps)
    point = emitter.cast(emitter.each("Round", "whole", within), DType.UINT8, "zero_point")
    return emitter.each("QuantizeLinear", "quantised", x, scale, point, dtype=DType.UINT8), scale, point
