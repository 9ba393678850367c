"""Normalisations written as sums, means and products, which can be cut; see ``lowering`` for BatchNormalization."""

from __future__ import annotations

import math
from collections.abc import Sequence

from planner.graph.model import Op
from planner.training.attributes import integers, number
from planner.training.builder import Builder


def _centred(emit: Builder, x: str, over: Sequence[int]) -> tuple[str, str]:
    """``x - mean`` and the variance over some dims, in two passes: Σx²/n - mean² cancels."""
    share = 1.0 / math.prod(emit.shape(x)[dim] for dim in over)
    mean = emit.scale(emit.reduce_sum(x, over, keepdims=True, hint="sum"), share, "mean")
    centred = emit.sub(x, mean, "centred")
    square = emit.mul(centred, centred, "square")
    variance = emit.scale(emit.reduce_sum(square, over, keepdims=True), share, "variance")
    return centred, variance


def normalised(emit: Builder, x: str, over: Sequence[int], epsilon: float) -> str:
    """``(x - mean) / √(variance + epsilon)`` over some dims."""
    centred, variance = _centred(emit, x, over)
    if epsilon:
        variance = emit.add(variance, emit.scalar(epsilon, x))
    return emit.div(centred, emit.unary("Sqrt", variance, "deviation"), "normalised")


def instance_normalization(emit: Builder, op: Op) -> tuple[str, ...]:
    """Y = scale (x - mean) / √(var + epsilon) + bias, mean and var of each sample's channel (Ulyanov 2016)."""
    x, scale, bias = op.inputs
    rank = emit.rank(x)
    normal = normalised(emit, x, range(2, rank), number(op, "epsilon", 1e-5))
    scale, bias = (emit.unsqueeze(name, range(1, rank - 1)) for name in (scale, bias))
    return (emit.add(emit.mul(normal, scale), bias),)


def mean_variance_normalization(emit: Builder, op: Op) -> tuple[str, ...]:
    """Y = (x - mean) / (√var + 1e-9) over ``axes``, as ONNX's function body has it."""
    x = op.inputs[0]
    rank = emit.rank(x)
    over = sorted(axis % rank for axis in integers(op, "axes", (0, 2, 3)))
    centred, variance = _centred(emit, x, over)
    deviation = emit.add(emit.unary("Sqrt", variance), emit.scalar(1e-9, x), "deviation")
    return (emit.div(centred, deviation),)
