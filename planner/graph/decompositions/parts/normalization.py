"""Normalisations as means of the elements and of their squared distances from the mean.

The variance takes two passes: E[x²] - E[x]² cancels. Both means are sums of parts, so that a worker may have any part
of the elements. What normalises in a higher precision than its operand's (``stash_type``) does so here.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.graph.core.attributes import integer, integers, number
from planner.graph.core.emitter import Emitter
from planner.graph.core.model import DType, Op
from planner.graph.core.traits import STATISTICS
from planner.graph.decompositions.batch_statistics import normalised_by_batch
from planner.graph.decompositions.parts.softmax import axis_of
from planner.graph.decompositions.registry import Purpose, stands_for


def _widened(emitter: Emitter, op: Op) -> str:
    """The first operand in the precision that it is normalised in (``stash_type`` 1: at least float32)."""
    x = op.inputs[0]
    if op.attribute("stash_type", 1) == 1 and emitter.dtype(x).is_half:
        return emitter.cast(x, DType.FLOAT32, "wide")
    return x


def _inverse_deviation(emitter: Emitter, variance: str, epsilon: float) -> str:
    dtype = emitter.dtype(variance)
    safe = emitter.each("Add", "safe", variance, emitter.scalar(epsilon, dtype, "epsilon"))
    return emitter.each("Reciprocal", "inverse", emitter.each("Sqrt", "deviation", safe))


def _centred(emitter: Emitter, x: str, axes: Sequence[int]) -> tuple[str, str, str]:
    """(mean, x - mean, variance); the dims stay, with size 1 in mean and variance."""
    mean = emitter.reduce("ReduceMean", x, axes, "mean")
    centred = emitter.each("Sub", "centred", x, mean)
    squared = emitter.each("Mul", "squared", centred, centred)
    return mean, centred, emitter.reduce("ReduceMean", squared, axes, "variance")


def _standard(emitter: Emitter, x: str, axes: Sequence[int], epsilon: float) -> tuple[str, str, str]:
    """((x - mean) / deviation, mean, 1 / deviation)."""
    mean, centred, variance = _centred(emitter, x, axes)
    inverse = _inverse_deviation(emitter, variance, epsilon)
    return emitter.each("Mul", "normal", centred, inverse), mean, inverse


def _learned(emitter: Emitter, normal: str, scale: str, bias: str) -> str:
    """Normal * scale + bias; "" where there is none."""
    scaled = emitter.each("Mul", "scaled", normal, scale) if scale else normal
    return emitter.each("Add", "shifted", scaled, bias) if bias else scaled


def _learned_by_channel(emitter: Emitter, normal: str, op: Op, suffix: str) -> str:
    """Normal * scale + bias, vectors [C] for a tensor whose dim 1 are channels: as [C, 1, ..., 1], to broadcast.

    Exporters write ones and zeros where a model learns neither: what does nothing is not there.
    """
    learned, after = [], range(emitter.rank(normal) - 2)
    for name, neutral, part in ((op.inputs[1], 1.0, "scale"), (op.inputs[2], 0.0, "bias")):
        column = (emitter.shape(name)[0], *(1 for _ in after))
        learned.append("" if emitter.is_fixed(name, neutral) else emitter.reshape(name, column, f"{part}.{suffix}"))
    return _learned(emitter, normal, *learned)


def _slot(op: Op, slot: int) -> str:
    return op.inputs[slot] if slot < len(op.inputs) else ""


@stands_for("LayerNormalization", purpose=Purpose.PARTS)
def layer_normalization(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """Over the dims from axis on; also the mean and the inverse deviation, in the precision of normalising."""
    dtype = emitter.dtype(op.inputs[0])
    x = _widened(emitter, op)
    axes = range(axis_of(emitter, op, -1), emitter.rank(x))
    normal, mean, inverse = _standard(emitter, x, axes, number(op, "epsilon", 1e-5))
    y = _learned(emitter, emitter.cast(normal, dtype, "narrow"), op.inputs[1], _slot(op, 2))
    statistics = []
    for output, statistic, part in zip(op.outputs[1:], (mean, inverse), ("mean.out", "inverse.out"), strict=False):
        statistics.append(emitter.cast(statistic, emitter.dtype(output), part) if output else statistic)
    return (y, *statistics)


@stands_for("RMSNormalization", "SimplifiedLayerNormalization", purpose=Purpose.PARTS)
def rms_normalization(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """Over the dims from axis on, without subtracting the mean; also one over the root, if that is wanted."""
    dtype = emitter.dtype(op.inputs[0])
    x = _widened(emitter, op)
    axes = range(axis_of(emitter, op, -1), emitter.rank(x))
    power = emitter.reduce("ReduceMean", emitter.each("Mul", "squared", x, x), axes, "power")
    inverse = _inverse_deviation(emitter, power, number(op, "epsilon", 1e-5))
    normal = emitter.cast(emitter.each("Mul", "normal", x, inverse), dtype, "narrow")
    return (_learned(emitter, normal, op.inputs[1], ""), inverse)


@stands_for("InstanceNormalization", purpose=Purpose.PARTS)
def instance_normalization(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """Over the spatial dims of each sample and channel."""
    x = op.inputs[0]
    rank = emitter.rank(x)
    if rank < 3:
        return None
    normal, _, _ = _standard(emitter, x, range(2, rank), number(op, "epsilon", 1e-5))
    return (_learned_by_channel(emitter, normal, op, "c"),)


@stands_for("GroupNormalization", purpose=Purpose.PARTS)
def group_normalization(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """Over the spatial dims and the channels of each group; scale and bias by group (opset 18) or by channel (21)."""
    groups = integer(op, "num_groups")
    dtype, shape = emitter.dtype(op.inputs[0]), emitter.shape(op.inputs[0])
    channels, spatial = shape[1], shape[2:]
    if channels % groups:
        return None
    x = emitter.reshape(_widened(emitter, op), (shape[0], groups, channels // groups, *spatial), "grouped")
    normal, _, _ = _standard(emitter, x, range(2, emitter.rank(x)), number(op, "epsilon", 1e-5))
    normal = emitter.cast(normal, dtype, "narrow")
    if emitter.opset >= 21:
        return (_learned_by_channel(emitter, emitter.reshape(normal, shape, "flat"), op, "c"),)
    return (emitter.reshape(_learned_by_channel(emitter, normal, op, "g"), shape, "flat"),)


@stands_for("MeanVarianceNormalization", purpose=Purpose.PARTS)
def mean_variance_normalization(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """(x - mean) / (deviation + 1e-9) over axes."""
    x = op.inputs[0]
    axes = sorted({axis % emitter.rank(x) for axis in integers(op, "axes", (0, 2, 3))})
    _, centred, variance = _centred(emitter, x, axes)
    deviation = emitter.each("Sqrt", "deviation", variance)
    safe = emitter.each("Add", "safe", deviation, emitter.scalar(1e-9, emitter.dtype(x), "epsilon"))
    return (emitter.each("Div", "normal", centred, safe),)


@stands_for(*STATISTICS, purpose=Purpose.PARTS)
def batch_normalization(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """In training mode, by the statistics of the batch; running ones take (1 - momentum) of them (opset 14)."""
    if not op.attribute("training_mode", 0):
        return None
    x = op.inputs[0]
    if emitter.rank(x) < 2 or not emitter.tensor(x).elements:
        return None
    wide = _widened(emitter, op)  # of 65,504 ones in float16 the sum is infinite
    by_batch = normalised_by_batch(emitter, op, wide, op.inputs[3:])
    return (emitter.cast(by_batch.y, emitter.dtype(x), "narrow"), *by_batch.following)


@stands_for("LpNormalization", purpose=Purpose.PARTS)
def lp_normalization(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """X divided by its 1-norm or 2-norm along axis; zeros stay."""
    x = op.inputs[0]
    axis, dtype = axis_of(emitter, op, -1), emitter.dtype(x)
    if op.attribute("p", 2) == 1:
        norm = emitter.reduce("ReduceSum", emitter.each("Abs", "absolute", x), (axis,), "norm")
    else:
        squared = emitter.reduce("ReduceSum", emitter.each("Mul", "squared", x, x), (axis,), "power")
        norm = emitter.each("Sqrt", "norm", squared)
    zero, unit = emitter.scalar(0.0, dtype, "zero"), emitter.scalar(1.0, dtype, "one")
    is_zero = emitter.each("Equal", "is_zero", norm, zero, dtype=DType.BOOL)
    return (emitter.each("Div", "normal", x, emitter.each("Where", "divisor", is_zero, unit, norm)),)
