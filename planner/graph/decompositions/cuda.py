"""Operators that CUDA has no kernel for and ONNX's specification no ops, in others; operands all have one dtype."""

from __future__ import annotations

import numpy as np

from planner.graph.decompositions.parts.normalization import batch_normalization
from planner.graph.decompositions.parts.softmax import axis_of
from planner.graph.decompositions.registry import Purpose, stands_for
from planner.graph.emitter import Emitter
from planner.graph.model import DType, Op

trained_batch_normalization = stands_for("BatchNormalization", purpose=Purpose.CUDA)(batch_normalization.function)


@stands_for("Mean", purpose=Purpose.CUDA)
def mean(emitter: Emitter, op: Op) -> tuple[str, ...]:
    """The sum of the operands, divided by how many there are."""
    total = emitter.each("Sum", "total", *op.inputs)
    return (emitter.each("Div", "mean", total, emitter.scalar(len(op.inputs), emitter.dtype(total), "count")),)


@stands_for("com.microsoft.FusedGemm", purpose=Purpose.CUDA)
def fused_gemm(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """A product of the optimizer's, which it makes for CPUs alone, and the function that it is followed by."""
    after, dtype = op.attribute("activation"), emitter.dtype(op.inputs[0])
    if after not in ("LeakyRelu", "Relu", "Sigmoid", "Tanh"):
        return None
    a, b = (emitter.shape(name) for name in op.inputs[:2])
    shape = (a[1 if op.attribute("transA") else 0], b[0 if op.attribute("transB") else 1])
    slope = op.attribute("activation_alpha")
    assert after != "LeakyRelu" or slope is not None, "the optimizer states it"
    parameters = {"alpha": slope} if after == "LeakyRelu" and slope is not None else {}
    of_product = {name: value for name, value in op.attributes if not name.startswith("activation")}
    product = emitter.one("Gemm", op.inputs, shape, dtype, hint="product", attributes=of_product)
    return (emitter.one(str(after), (product,), shape, dtype, hint="result", attributes=parameters),)


@stands_for("Tan", purpose=Purpose.CUDA)
def tan(emitter: Emitter, op: Op) -> tuple[str, ...]:
    """The sine divided by the cosine."""
    (x,) = op.inputs
    return (emitter.each("Div", "tan", emitter.each("Sin", "sin", x), emitter.each("Cos", "cos", x)),)


@stands_for("Hardmax", purpose=Purpose.CUDA)
def hardmax(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """1 where the first largest element along the axis is, 0 elsewhere; before opset 13 along several dims at once."""
    if emitter.opset < 13:
        return None
    (x,) = op.inputs
    shape, axis = emitter.shape(x), axis_of(emitter, op, -1)
    line = tuple(1 if dim == axis else size for dim, size in enumerate(shape))
    largest = emitter.one("ArgMax", (x,), line, DType.INT64, hint="largest", attributes={"axis": axis, "keepdims": 1})
    places = emitter.constant(np.arange(shape[axis]).reshape(-1, *(1 for _ in shape[axis + 1 :])), "places")
    is_first = emitter.each("Equal", "is_first", places, largest, dtype=DType.BOOL)
    return (emitter.cast(is_first, emitter.dtype(x), "hardmax"),)
