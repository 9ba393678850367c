"""Random operators as functions of seed, operator, step and global index: what is made of the numbers of ``Draw``."""

from __future__ import annotations

import math

import numpy as np

from planner.graph.core.attributes import number
from planner.graph.core.model import DType, Op
from planner.graph.decompositions.registry import Purpose, stands_for
from planner.graph.rewriting.random_numbers import Draw


@stands_for("RandomNormal", "RandomNormalLike", purpose=Purpose.RANDOM)
def random_normal(draw: Draw, op: Op) -> tuple[str, ...]:
    """A standard normal number times scale, plus mean; RandomNormalLike takes shape and dtype of its input."""
    shape = draw.emitter.shape(op.outputs[0])
    return (draw.affine(draw.normal(shape), number(op, "scale", 1.0), number(op, "mean", 0.0)),)


@stands_for("RandomUniform", "RandomUniformLike", purpose=Purpose.RANDOM)
def random_uniform(draw: Draw, op: Op) -> tuple[str, ...]:
    """Evenly between low and high; RandomUniformLike takes shape and dtype of its input."""
    low, high = number(op, "low", 0.0), number(op, "high", 1.0)
    return (draw.affine(draw.uniform(draw.emitter.shape(op.outputs[0])), high - low, low),)


@stands_for("Bernoulli", purpose=Purpose.RANDOM)
def bernoulli(draw: Draw, op: Op) -> tuple[str, ...]:
    """1 with the probability that the input says, else 0."""
    emitter, (x,), (output,) = draw.emitter, op.inputs, op.outputs
    chance = emitter.cast(x, DType.FLOAT32, "chance")
    drawn = emitter.each("Less", "drawn", draw.uniform(emitter.shape(x)), chance, dtype=DType.BOOL)
    return (emitter.cast(drawn, emitter.dtype(output), "result"),)


@stands_for("Dropout", purpose=Purpose.RANDOM)
def dropout(draw: Draw, op: Op) -> tuple[str, ...]:
    """Output = x / (1 - ratio) where the mask is true, else 0; the ratio is 0.5 where none is given."""
    emitter = draw.emitter
    x = op.inputs[0]
    shape, dtype = emitter.shape(x), emitter.dtype(x)
    ratio_input = op.inputs[1] if len(op.inputs) > 1 else ""
    constant = emitter.value(ratio_input) if ratio_input else np.array(0.5, np.float32)
    if constant is None:
        ratio = emitter.cast(ratio_input, DType.FLOAT64, "ratio")
        least = emitter.each("Ceil", "ceil", emitter.each("Mul", "all", ratio, emitter.scalar(2.0**32, ratio, "count")))
        largest = emitter.scalar(2.0**32 - 1, ratio, "most")
        least = emitter.cast(emitter.each("Min", "least", least, largest), DType.UINT32, "threshold")
        unit = emitter.scalar(1.0, ratio, "one")
        factor = emitter.cast(emitter.each("Div", "factor64", unit, emitter.each("Sub", "kept", unit, ratio)), dtype,
                              "factor")  # fmt: skip
    else:
        share = float(constant.item())
        # Of 2^32 numbers those below the threshold are dropped; compared as integers, so that no rounding decides.
        threshold = min(math.ceil(share * 2**32), 2**32 - 1)
        least = emitter.scalar(threshold, DType.UINT32, "threshold")
        factor = emitter.scalar(1 / (1 - share) if share < 1 else 0.0, dtype, "factor")
    mask = emitter.each("GreaterOrEqual", "mask", draw.bits(shape), least, dtype=DType.BOOL)
    scaled = emitter.each("Mul", "scaled", x, factor)
    zero = emitter.scalar(0.0, dtype, "zero")
    return (emitter.each("Where", "result", mask, scaled, zero), mask)


@stands_for("Multinomial", purpose=Purpose.RANDOM)
def multinomial(draw: Draw, op: Op) -> tuple[str, ...]:
    """Classes by inversion: the first one at which the running sum of weights, e^x, exceeds a share of their total.

    The weights are whole numbers, so that their sums are the same in any order.
    """
    emitter, (x,), (output,) = draw.emitter, op.inputs, op.outputs
    (rows, classes), shape = emitter.shape(x), emitter.shape(output)
    weights = draw.weights(x, bits=min(40, 52 - classes.bit_length()))
    along = emitter.scalar(1, DType.INT64, "along")
    running = emitter.one("CumSum", (weights, along), (rows, classes), DType.INT64, hint="running")
    total = emitter.cast(emitter.reduce("ReduceSum", weights, (1,), "total"), DType.FLOAT64, "total64")
    bits = emitter.cast(draw.bits(shape), DType.FLOAT64, "bits64")
    share = emitter.each("Mul", "share", bits, emitter.scalar(2.0**-32, DType.FLOAT64, "unit"))
    reached = emitter.cast(emitter.each("Floor", "floor", emitter.each("Mul", "scaled", share, total)), DType.INT64,
                           "reached")  # fmt: skip
    passed = emitter.each(
        "LessOrEqual", "passed", emitter.reshape(running, (rows, 1, classes), "running3"),
        emitter.reshape(reached, (*shape, 1), "reached3"), dtype=DType.BOOL,
    )  # fmt: skip
    count = emitter.reduce("ReduceSum", emitter.cast(passed, DType.INT64, "passed64"), (2,), "count", keepdims=False)
    return (emitter.cast(count, emitter.dtype(output), "result"),)
