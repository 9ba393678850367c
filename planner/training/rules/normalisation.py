"""Gradient rules of BatchNormalization and LayerNormalization.

The forward op of a training step may differ from the model's: see ``planner.training.gradients.lowering``, which leaves
what the rules here read.
"""

from __future__ import annotations

import math

from planner.graph.core.attributes import axis_of, integer, number, refuse
from planner.graph.decompositions.batch_statistics import per_channel, scaled
from planner.training.gradients.autodiff import Backward, Contributions, gradient


@gradient("BatchNormalization", inputs=(0, 1, 2))
def batch_normalization(context: Backward) -> Contributions:
    """For y = scale (x - mean) / σ + bias, with σ = √(var + epsilon), per channel.

    dbias = Σ dy and dscale = Σ dy (x - mean) / σ in both modes, over samples and positions.

    Frozen (mean and var are constants): dx = dy scale / σ.

    Batch statistics (Ioffe and Szegedy 2015, §3, with mean and var eliminated; n elements per channel):
    dx = scale/σ (dy - dbias/n - (x - mean) dscale/(n σ)).
    """
    emit, dy = context.builder, context.dy
    rank = emit.rank(dy)
    over = [dim for dim in range(rank) if dim != 1]
    if not context.saved:
        return _frozen(context, over)
    centred, deviation, slope = (context.saved[key] for key in ("centred", "deviation", "slope"))
    dbias = emit.reduce_sum(dy, over)
    dscale = emit.div(emit.reduce_sum(emit.mul(dy, centred), over), deviation)
    if not context.wanted[0]:
        return [None, dscale, dbias]
    share = 1.0 / (math.prod(emit.shape(dy)) // emit.shape(dy)[1])
    along = emit.scale(emit.div(dscale, deviation), share)
    inner = emit.sub(dy, scaled(emit, centred, along, emit.scale(dbias, share)))
    return [emit.mul(inner, slope), dscale, dbias]


def _frozen(context: Backward, over: list[int]) -> Contributions:
    emit, op, dy = context.builder, context.op, context.dy
    if integer(op, "training_mode", 0):
        raise refuse(op, "its training_mode is 1, which frozen statistics contradict", hint="choose batchnorm 'train'")
    x, scale, _, mean, variance = op.inputs
    rank = emit.rank(x)
    epsilon = emit.scalar(number(op, "epsilon", 1e-5), variance)
    deviation = emit.unary("Sqrt", emit.add(variance, epsilon))
    dx = dscale = dbias = None
    if context.wanted[0]:
        dx = emit.mul(dy, per_channel(emit, emit.div(scale, deviation), rank))
    if context.wanted[1]:
        centred = emit.sub(x, per_channel(emit, mean, rank))
        dscale = emit.div(emit.reduce_sum(emit.mul(dy, centred), over), deviation)
    if context.wanted[2]:
        dbias = emit.reduce_sum(dy, over)
    return [dx, dscale, dbias]


@gradient("LayerNormalization")
def layer_normalization(context: Backward) -> Contributions:
    """For y = scale x̂ + bias, x̂ = (x - mean)/σ over the dims from ``axis`` on (Ba, Kiros and Hinton 2016).

    With dx̂ = dy scale and n elements to a row: dx = (dx̂ - Σdx̂/n - x̂ Σ(dx̂ x̂)/n) / σ; dscale = Σ dy x̂ and
    dbias = Σ dy over rows. Mean and 1/σ are the forward op's second and third output.
    """
    emit, op, dy = context.builder, context.op, context.dy
    x, scale = op.inputs[:2]
    shape = emit.shape(x)
    rows = list(range(axis_of(op, len(shape), -1), len(shape)))
    mean, inverse = (emit.cast(context.saved[key], emit.dtype(x)) for key in ("mean", "inverse"))
    normalised = emit.mul(emit.sub(x, mean), inverse)
    dx = dscale = dbias = None
    if context.wanted[0]:
        share = 1.0 / math.prod(shape[dim] for dim in rows)
        dx_hat = emit.mul(dy, scale)
        mean_dx = emit.scale(emit.reduce_sum(dx_hat, rows, keepdims=True), share)
        along = emit.scale(emit.reduce_sum(emit.mul(dx_hat, normalised), rows, keepdims=True), share)
        inner = emit.sub(emit.sub(dx_hat, mean_dx), emit.mul(normalised, along))
        dx = emit.mul(inner, inverse)
    if context.wanted[1]:
        dscale = emit.unbroadcast(emit.mul(dy, normalised), emit.shape(scale))
    if context.has_input(2) and context.wanted[2]:
        dbias = emit.unbroadcast(dy, emit.shape(op.inputs[2]))
    return [dx, dscale, dbias]


@gradient("LpNormalization")
def lp_normalization(context: Backward) -> Contributions:
    """For y = x / n, n the p-norm along ``axis``: dx = (dy - s Σ dy y) / n, s = y for p = 2 and sign(x) for p = 1.

    0 where n is 0.
    """
    emit, op, x = context.builder, context.op, context.x
    axis = axis_of(op, emit.rank(x), -1)
    p = integer(op, "p", 2)
    sizes = emit.mul(x, x) if p == 2 else emit.unary("Abs", x)
    norm = emit.reduce_sum(sizes, [axis], keepdims=True, hint="norm")
    if p == 2:
        norm = emit.unary("Sqrt", norm, "norm")
    total = emit.reduce_sum(emit.mul(context.dy, context.y), [axis], keepdims=True)
    along = emit.mul(context.y if p == 2 else emit.unary("Sign", x), total)
    is_zero = emit.compare("Equal", norm, emit.scalar(0.0, norm))
    safe = emit.where(is_zero, emit.scalar(1.0, norm), norm)
    return [emit.where(is_zero, emit.scalar(0.0, x), emit.div(emit.sub(context.dy, along), safe))]
