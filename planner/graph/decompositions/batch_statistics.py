"""BatchNormalization in training mode, for everybody who writes it out: bodies, training steps, GPUs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.graph.core.attributes import number
from planner.graph.core.emitter import Emitter
from planner.graph.core.model import DType, Op


@dataclass(frozen=True, slots=True)
class ByBatch:
    """The results of normalising by the batch; statistics are of shape [channels]."""

    y: str
    mean: str
    following: tuple[str, ...]
    """The running statistics after the batch, in the order of those before."""
    centred: str
    """``x - mean``."""
    deviation: str
    slope: str
    """``scale / deviation``, to broadcast over x."""


def normalised_by_batch(
    writer: Emitter, op: Op, x: str, running: Sequence[str], *, training: str | None = None
) -> ByBatch:
    """For y = scale (x - mean)/√(var + epsilon) + bias with the batch's own mean and variance, per channel.

    The variance is taken in two passes, Σ(x - mean)²/n: Σx²/n - mean² cancels. The running statistics follow ONNX:
    running * momentum + batch * (1 - momentum), with the population's variance. (PyTorch writes 1 - momentum for
    ONNX's momentum, and keeps the unbiased variance, n/(n-1) times as large.) Both statistics are sums, whose parts any
    division of the elements makes.

    Args:
        writer: gets the ops.
        op: with scale and bias, [channels], and the attributes.
        x: its operand, [samples, channels, ...], perhaps in a larger dtype; y has that.
        running: mean and variance before, [channels].
        training: a boolean scalar; where it is false, the running statistics are taken, and stay. None: true.
    """
    shape, dtype, momentum = writer.shape(x), writer.dtype(x), number(op, "momentum", 0.9)
    over = [dim for dim in range(len(shape)) if dim != 1]
    share = shape[1] / math.prod(shape)
    mean = writer.scale(writer.reduce_sum(x, over, hint="sum"), share, "mean")
    mean = writer.where(training, mean, writer.cast(running[0], dtype), "taken") if training else mean
    centred = writer.sub(x, per_channel(writer, mean, len(shape)), "centred")
    square = writer.mul(centred, centred, "square")
    variance = writer.scale(writer.reduce_sum(square, over, hint="sum_of_squares"), share, "variance")
    variance = writer.where(training, variance, writer.cast(running[1], dtype), "taken") if training else variance
    deviation = writer.unary("Sqrt", writer.add(variance, writer.scalar(number(op, "epsilon", 1e-5), x)), "deviation")
    scale, bias = (writer.cast(name, dtype) for name in op.inputs[1:3])
    slope = writer.div(scale, deviation, "slope")
    y = scaled(writer, centred, slope, bias)
    following = []
    for before, statistic in zip(running, (mean, variance), strict=True):
        past = writer.scale(before, momentum, "kept")
        added = writer.scale(writer.cast(statistic, writer.dtype(before)), 1.0 - momentum, "added")
        following.append(writer.add(past, added, "running"))
    return ByBatch(y, mean, tuple(following), centred, deviation, per_channel(writer, slope, len(shape)))


def scaled(writer: Emitter, x: str, scale: str, bias: str) -> str:
    """``scale x + bias``, both [channels], in one pass: a BatchNormalization by a mean of 0 and a variance of 1."""
    (channels,), dtype = writer.shape(scale), writer.dtype(x)
    if dtype is DType.BFLOAT16:  # of which runtimes have no kernel
        scale, bias = (per_channel(writer, name, writer.rank(x)) for name in (scale, bias))
        return writer.add(writer.mul(x, scale), bias)
    mean, variance = (
        writer.constant(np.full(channels, value, dtype.array_dtype), f"{hint}.{channels}")
        for value, hint in ((0, "zeros"), (1, "ones"))
    )
    attributes = {"epsilon": 0.0}
    return writer.one(
        "BatchNormalization",
        [x, scale, bias, mean, variance],
        writer.shape(x),
        dtype,
        hint="scaled",
        attributes=attributes,
    )


def per_channel(writer: Emitter, vector: str, rank: int) -> str:
    """A tensor [C] as [C, 1, ...], to be broadcast over x [N, C, ...] of this rank."""
    return writer.unsqueeze(vector, range(1, rank - 1))
