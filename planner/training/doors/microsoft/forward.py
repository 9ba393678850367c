"""Operators of com.microsoft that are no gradients: products, sums, shapes, activations."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from planner.graph.core.attributes import attributes_of, axis_of, integer, number, reduced_dims
from planner.graph.core.model import Op
from planner.training.doors.walk import Lowering, Walk


def _fused_matmul(walk: Walk, op: Op) -> tuple[str, ...]:
    emit = walk.builder
    operands: list[str] = []
    for name, letter in zip(op.inputs, "AB", strict=True):
        rank = emit.rank(name)
        order = list(range(rank))
        if integer(op, f"transBatch{letter}", 0):
            order = [*order[1:-1], order[0], order[-1]]
        if integer(op, f"trans{letter}", 0):
            order = [*order[:-2], order[-1], order[-2]]
        operands.append(emit.transpose(name, order))
    return (emit.scale(emit.matmul(*operands), number(op, "alpha", 1.0)),)


def _broadcast_axes(walk: Walk, op: Op) -> tuple[str, ...]:
    """BroadcastGradientArgs: along which dims each of two shapes was repeated."""
    shapes = [walk.integers(op, position, "shapes") for position in (0, 1)]
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    full = tuple(max(sizes) for sizes in zip(*padded, strict=True))
    outputs: list[str] = []
    for shape, sizes in zip(shapes, padded, strict=True):
        missing = rank - len(shape)
        axes = [dim for dim in range(rank) if dim < missing or (sizes[dim] == 1 and full[dim] != 1)]
        outputs.append(walk.builder.ints(axes, "axes"))
    return tuple(outputs)


def _reduce_sum(walk: Walk, op: Op) -> tuple[str, ...]:
    emit, x = walk.builder, op.inputs[0]
    axes = reduced_dims(op, emit.rank(x), lambda _: np.array(walk.integers(op, 1, "axes")))
    return (emit.reduce_sum(x, axes or (), keepdims=bool(integer(op, "keepdims", 1))),)


def _scale(walk: Walk, op: Op) -> tuple[str, ...]:
    emit, (x, factor) = walk.builder, op.inputs
    factor = emit.reshape(emit.cast(factor, emit.dtype(x)), ())
    return (emit.div(x, factor) if integer(op, "scale_down", 0) else emit.mul(x, factor),)


def _concat(walk: Walk, op: Op) -> tuple[str, ...]:
    emit = walk.builder
    axis = axis_of(op, emit.rank(op.inputs[0]), 0)
    sizes = [emit.shape(name)[axis] for name in op.inputs]
    return emit.concat(op.inputs, axis), emit.ints(sizes, "sizes")


def _split(walk: Walk, op: Op) -> tuple[str, ...]:
    emit, x = walk.builder, op.inputs[0]
    axis = axis_of(op, emit.rank(x), 0)
    parts: list[str] = []
    start = 0
    for size in walk.integers(op, 1, "sizes"):
        starts, ends = [0] * emit.rank(x), list(emit.shape(x))
        starts[axis], ends[axis] = start, start + size
        parts.append(emit.slice(x, starts, ends))
        start += size
    return tuple(parts)


def _zero(walk: Walk, op: Op) -> tuple[str, ...]:
    return (walk.builder.zeros(walk.builder.shape(op.inputs[0]), op.inputs[0]),)


def _trilu(walk: Walk, op: Op) -> tuple[str, ...]:
    emit, x = walk.builder, op.inputs[0]
    return (emit.one("Trilu", op.inputs, emit.shape(x), emit.dtype(x), attributes=attributes_of(op)),)


def _gelu(approximate: str) -> Lowering:
    def lowering(walk: Walk, op: Op) -> tuple[str, ...]:
        emit, (x, *bias) = walk.builder, op.inputs
        if bias and bias[0]:
            x = emit.add(x, bias[0])
        return (emit.one("Gelu", [x], emit.shape(x), emit.dtype(x), attributes={"approximate": approximate}),)

    return lowering


def _quick_gelu(walk: Walk, op: Op) -> tuple[str, ...]:
    emit, x = walk.builder, op.inputs[0]
    return (emit.mul(x, emit.unary("Sigmoid", emit.scale(x, number(op, "alpha", 1.702)))),)


def _accumulate(walk: Walk, op: Op) -> tuple[str, ...]:
    """InPlaceAccumulatorV2(buffer, value, overwrite) → whether it was done.

    The step that is built here uses the value itself; accumulation over micro-batches is a choice of the optimizer's.
    """
    emit = walk.builder
    return (emit.constant(np.ones((1,), np.bool_), f"{op.name}.updated"),)


LOWERINGS: Final[Mapping[str, Lowering]] = MappingProxyType(
    {
        "BiasGelu": _gelu("none"),
        "BroadcastGradientArgs": _broadcast_axes,
        "ConcatTraining": _concat,
        "FastGelu": _gelu("tanh"),
        "FusedMatMul": _fused_matmul,
        "Gelu": _gelu("none"),
        "InPlaceAccumulator": _accumulate,
        "InPlaceAccumulatorV2": _accumulate,
        "QuickGelu": _quick_gelu,
        "ReduceSumTraining": _reduce_sum,
        "Scale": _scale,
        "SplitTraining": _split,
        "TransposeMatMul": _fused_matmul,
        "Trilu": _trilu,
        "ZeroGradient": _zero,
    }
)
"""By operator."""
