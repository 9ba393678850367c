"""Normalisations as sums, means and products, which can be cut; by the batch: ``batch_statistics``."""

from __future__ import annotations

import math
from collections.abc import Sequence

from planner.graph.core.attributes import integer, integers, number, refuse
from planner.graph.core.builder import Builder
from planner.graph.core.model import DType, Op, Shape
from planner.graph.decompositions.registry import Purpose, stands_for


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
    inverse = emit.unary("Reciprocal", emit.unary("Sqrt", variance, "deviation"), "inverse")
    return emit.mul(centred, inverse, "normalised")


def _scaled(emit: Builder, normal: str, scale: str, bias: str) -> str:
    """``scale normal + bias`` by channel; without what does nothing, as an exporter's own ones and zeros do."""
    for op_type, name, neutral in (("Mul", scale, 1), ("Add", bias, 0)):
        value = emit.value(name) if name in emit.folded else None
        if value is None or (value != neutral).any():
            normal = emit.binary(op_type, normal, emit.unsqueeze(name, range(1, emit.rank(normal) - 1)))
    return normal


@stands_for("InstanceNormalization", purpose=Purpose.GRADIENT)
def instance_normalization(emit: Builder, op: Op) -> tuple[str, ...]:
    """Y = scale (x - mean) / √(var + epsilon) + bias, mean and var of each sample's channel (Ulyanov 2016)."""
    x, scale, bias = op.inputs
    normal = normalised(emit, x, range(2, emit.rank(x)), number(op, "epsilon", 1e-5))
    return (_scaled(emit, normal, scale, bias),)


@stands_for("GroupNormalization", purpose=Purpose.GRADIENT)
def group_normalization(emit: Builder, op: Op) -> tuple[str, ...]:
    """Y = scale (x - mean) / √(var + epsilon) + bias, mean and var of each sample's group of channels (Wu 2018).

    Groups get a dim of their own and space keeps its dims, so that statistics are sums of what any part of an image
    has. ONNX's function body joins channels and space to one dim, of which a part of the height is no box.
    """
    x, scale, bias = op.inputs
    shape, dtype = emit.shape(x), emit.dtype(x)
    apart = _by_group(shape, (shape[0], integer(op, "num_groups", 1)))
    if apart is None:
        raise refuse(op, f"{integer(op, 'num_groups', 1)} groups of {shape[1]} channels")
    wide = emit.cast(x, DType.FLOAT32) if integer(op, "stash_type", 1) == 1 and dtype.is_half else x
    grouped = emit.reshape(wide, apart, "grouped")
    normal = normalised(emit, grouped, range(2, len(apart)), number(op, "epsilon", 1e-5))
    return (_scaled(emit, emit.reshape(emit.cast(normal, dtype), shape, "normal"), scale, bias),)


def _by_group(image: Shape, groups: Shape) -> Shape | None:
    """[N, groups, channels of a group, height, width, ...]; None where the channels do not make whole groups.

    Args:
        image: [N, channels, height, width, ...].
        groups: [N, groups].
    """
    if len(image) < 2 or image[0] != groups[0] or not groups[1] or image[1] % groups[1]:
        return None
    return (*groups, image[1] // groups[1], *image[2:])


@stands_for("MeanVarianceNormalization", purpose=Purpose.GRADIENT)
def mean_variance_normalization(emit: Builder, op: Op) -> tuple[str, ...]:
    """Y = (x - mean) / (√var + 1e-9) over ``axes``, as ONNX's function body has it."""
    x = op.inputs[0]
    rank = emit.rank(x)
    over = sorted(axis % rank for axis in integers(op, "axes", (0, 2, 3)))
    centred, variance = _centred(emit, x, over)
    deviation = emit.add(emit.unary("Sqrt", variance), emit.scalar(1e-9, x), "deviation")
    return (emit.div(centred, deviation),)
