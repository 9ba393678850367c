"""Normalisations of com.microsoft, forward and backward."""

from __future__ import annotations

import math

from planner.graph.core.attributes import attributes_of, axis_of
from planner.graph.core.model import Op
from planner.graph.decompositions.batch_statistics import normalised_by_batch, per_channel
from planner.graph.decompositions.registry import Purpose, stands_for
from planner.training.doors.rewriting import Rewriting


@stands_for("com.microsoft.LayerNormalizationGrad", purpose=Purpose.ARTIFACTS)
def layer_normalization(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """The gradients of LayerNormalization from (GO, X, scale, mean, 1/σ)."""
    dy, x, scale, mean, inverse = op.inputs
    bias = emit.declare(f"{op.name}.bias", emit.shape(scale), emit.dtype(scale))
    attributes, saved = attributes_of(op, "axis"), {"mean": mean, "inverse": inverse}
    return emit.gradients(op, "LayerNormalization", (x, scale, bias), dy, attributes=attributes, saved=saved)


@stands_for("com.microsoft.InvertibleLayerNormalizationGrad", purpose=Purpose.ARTIFACTS)
def invertible_layer_normalization(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """The gradients of LayerNormalization from its output.

    x̂ = (y - bias)/scale, which is x with mean 0 and 1/σ of 1, but for the factor 1/σ.
    """
    dy, y, scale, bias, inverse = op.inputs
    inverse = emit.cast(inverse, emit.dtype(y))
    centred = emit.div(emit.div(emit.sub(y, bias), scale), inverse)
    attributes, saved = (
        attributes_of(op, "axis"),
        {"mean": emit.zeros(emit.shape(inverse), inverse), "inverse": inverse},
    )
    return emit.gradients(op, "LayerNormalization", (centred, scale, bias), dy, attributes=attributes, saved=saved)


@stands_for("com.microsoft.SimplifiedLayerNormalizationGrad", purpose=Purpose.ARTIFACTS)
def simplified_layer_normalization(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """The gradients of y = scale x / √(mean x² + epsilon).

    With r = 1/root and g = dy scale: dx = r (g - x̂ mean(g x̂)); dscale = Σ dy x̂.
    """
    dy, x, scale, inverse = op.inputs
    inverse = emit.cast(inverse, emit.dtype(x))
    axis, shape = axis_of(op, emit.rank(x), -1), emit.shape(x)
    normal, g = emit.mul(x, inverse), emit.mul(dy, scale)
    total = emit.reduce_sum(emit.mul(g, normal), range(axis, len(shape)), keepdims=True)
    dx = emit.mul(inverse, emit.sub(g, emit.mul(normal, emit.scale(total, 1.0 / math.prod(shape[axis:])))))
    return dx, emit.unbroadcast(emit.mul(dy, normal), emit.shape(scale))


@stands_for("com.microsoft.BatchNormalizationGrad", purpose=Purpose.ARTIFACTS)
def batch_normalization(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """The gradients of BatchNormalization from (GO, X, scale, mean, 1/σ)."""
    dy, x, scale, mean, inverse = op.inputs
    rank = emit.rank(x)
    saved = {
        "centred": emit.sub(x, per_channel(emit, mean, rank)),
        "deviation": emit.unary("Reciprocal", inverse),
        "slope": per_channel(emit, emit.mul(scale, inverse), rank),
    }
    return emit.gradients(op, "BatchNormalization", (x, scale, scale), dy, saved=saved)


@stands_for("com.microsoft.BatchNormInternal", purpose=Purpose.ARTIFACTS)
def batch_normalization_forward(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """BatchNormalization by the batch's statistics; also their mean and 1/σ."""
    norm = normalised_by_batch(emit, op, op.inputs[0], op.inputs[3:])
    return norm.y, *norm.following, norm.mean, emit.unary("Reciprocal", norm.deviation)
