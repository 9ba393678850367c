"""Normalisations of com.microsoft, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from planner.graph.core.attributes import attributes_of, axis_of, integer, number
from planner.graph.core.model import DType, Op
from planner.graph.decompositions.batch_statistics import normalised_by_batch, per_channel
from planner.training.doors.walk import Lowering, Walk


def _layer_normalization(walk: Walk, op: Op) -> tuple[str, ...]:
    dy, x, scale, mean, inverse = op.inputs
    bias = walk.builder.declare(f"{op.name}.bias", walk.builder.shape(scale), walk.builder.dtype(scale))
    wanted = tuple(position for position, name in enumerate(op.outputs) if name)
    parts = walk.rule(
        "LayerNormalization", (x, scale, bias), dy, name=op.name, wanted=wanted, attributes=attributes_of(op, "axis"),
        saved={"mean": mean, "inverse": inverse},
    )  # fmt: skip
    return tuple(part or "" for part in parts)


def _layer_normalization_forward(walk: Walk, op: Op) -> tuple[str, ...]:
    """The runtime has it in ONNX's own domain at every opset; ONNX has it since 17, with the same attributes."""
    emit, x = walk.builder, op.inputs[0]
    shape = emit.shape(x)
    axis = axis_of(op, len(shape), -1)
    reduced_shape = tuple(1 if dim >= axis else size for dim, size in enumerate(shape))
    stash = DType.BFLOAT16 if integer(op, "stash_type", 1) == 16 else DType.FLOAT32
    shapes, dtypes = [shape, reduced_shape, reduced_shape], [emit.dtype(x), stash, stash]
    return emit.emit(op.op_type, op.inputs, shapes, dtypes, attributes=attributes_of(op))


def _invertible_layer_normalization(walk: Walk, op: Op) -> tuple[str, ...]:
    """From the output: x̂ = (y - bias)/scale, which is x with mean 0 and 1/σ of 1, but for the factor 1/σ."""
    emit, (dy, y, scale, bias, inverse) = walk.builder, op.inputs
    inverse = emit.cast(inverse, emit.dtype(y))
    centred = emit.div(emit.div(emit.sub(y, bias), scale), inverse)
    mean = emit.zeros(emit.shape(inverse), inverse)
    wanted = tuple(position for position, name in enumerate(op.outputs) if name)
    parts = walk.rule(
        "LayerNormalization", (centred, scale, bias), dy, name=op.name, wanted=wanted,
        attributes=attributes_of(op, "axis"), saved={"mean": mean, "inverse": inverse},
    )  # fmt: skip
    return tuple(part or "" for part in parts)


def _simplified_layer_normalization(walk: Walk, op: Op) -> tuple[str, ...]:
    """For y = scale x / √(mean x² + epsilon), r = 1/root: dx = r (g - x̂ mean(g x̂)), g = dy scale; dscale = Σ dy x̂."""
    emit, (dy, x, scale, inverse) = walk.builder, op.inputs
    shape = emit.shape(x)
    rows = list(range(axis_of(op, len(shape), -1), len(shape)))
    inverse = emit.cast(inverse, emit.dtype(x))
    normal, g = emit.mul(x, inverse), emit.mul(dy, scale)
    share = 1.0 / math.prod(shape[dim] for dim in rows)
    along = emit.scale(emit.reduce_sum(emit.mul(g, normal), rows, keepdims=True), share)
    dx = emit.mul(inverse, emit.sub(g, emit.mul(normal, along)))
    return dx, emit.unbroadcast(emit.mul(dy, normal), emit.shape(scale))


def _simplified_forward(walk: Walk, op: Op) -> tuple[str, ...]:
    emit, (x, scale) = walk.builder, op.inputs
    shape = emit.shape(x)
    rows = list(range(axis_of(op, len(shape), -1), len(shape)))
    share = 1.0 / math.prod(shape[dim] for dim in rows)
    square = emit.scale(emit.reduce_sum(emit.mul(x, x), rows, keepdims=True), share)
    root = emit.unary("Sqrt", emit.add(square, emit.scalar(number(op, "epsilon", 1e-5), x)))
    inverse = emit.unary("Reciprocal", root)
    return emit.mul(emit.mul(x, inverse), scale), inverse


def _batch_normalization(walk: Walk, op: Op) -> tuple[str, ...]:
    emit, (dy, x, scale, mean, inverse) = walk.builder, op.inputs
    rank = emit.rank(x)
    saved = {
        "centred": emit.sub(x, per_channel(emit, mean, rank)),
        "deviation": emit.unary("Reciprocal", inverse),
        "slope": per_channel(emit, emit.mul(scale, inverse), rank),
    }
    parts = walk.rule("BatchNormalization", (x, scale, scale), dy, name=op.name, wanted=(0, 1, 2), saved=saved)
    return tuple(part or "" for part in parts)


def _batch_normalization_forward(walk: Walk, op: Op) -> tuple[str, ...]:
    """BatchNormInternal: by the batch's statistics; 1/σ is handed on as well.

    The runtime writes the running statistics over those that it read, which are inputs of the model.
    """
    emit, (x, _, _, *held) = walk.builder, op.inputs
    norm = normalised_by_batch(emit, op, x, [walk.running.get(name, name) for name in held])
    walk.running.update(
        (name, following)
        for name, following, output in zip(held, norm.following, op.outputs[1:], strict=False)
        if output
    )
    return norm.y, *norm.following, norm.mean, emit.unary("Reciprocal", norm.deviation)


LOWERINGS: Final[Mapping[str, Lowering]] = MappingProxyType(
    {
        "BatchNormInternal": _batch_normalization_forward,
        "BatchNormalizationGrad": _batch_normalization,
        "InvertibleLayerNormalizationGrad": _invertible_layer_normalization,
        "LayerNormalization": _layer_normalization_forward,
        "LayerNormalizationGrad": _layer_normalization,
        "SimplifiedLayerNormalization": _simplified_forward,
        "SimplifiedLayerNormalizationGrad": _simplified_layer_normalization,
    }
)
"""By operator."""
