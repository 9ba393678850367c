"""Operators of com.microsoft that are no gradients: products, sums, shapes, activations."""

from __future__ import annotations

from typing import Final

from planner.graph.core.attributes import attributes_of, axis_of, integer, reduced_dims, refuse
from planner.graph.core.model import Op
from planner.graph.decompositions.reading.fused import fused_matmul
from planner.graph.decompositions.registry import Purpose, stands_for
from planner.training.doors.rewriting import Rewriting

_REFUSED: Final = {
    "BitmaskDropoutGrad": "a mask of bits has no standard form",
    "NcclAllReduce": "the model is distributed already",
}


@stands_for(*(f"com.microsoft.{name}" for name in _REFUSED), purpose=Purpose.ARTIFACTS)
def refused(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """Operators without a standard form."""
    raise refuse(op, _REFUSED[op.op_type])


transposed_matmul = stands_for("com.microsoft.TransposeMatMul", purpose=Purpose.ARTIFACTS)(fused_matmul.function)


@stands_for("com.microsoft.BroadcastGradientArgs", purpose=Purpose.ARTIFACTS)
def broadcast_axes(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """The dims along which each of two shapes was repeated."""
    shapes = [tuple(emit.known(op, slot, "shapes").tolist()) for slot in (0, 1)]
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    full = tuple(max(sizes) for sizes in zip(*padded, strict=True))
    outputs: list[str] = []
    for shape, sizes in zip(shapes, padded, strict=True):
        missing = rank - len(shape)
        axes = [dim for dim in range(rank) if dim < missing or (sizes[dim] == 1 and full[dim] != 1)]
        outputs.append(emit.ints(axes, "axes"))
    return tuple(outputs)


@stands_for("com.microsoft.ReduceSumTraining", purpose=Purpose.ARTIFACTS)
def reduce_sum(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """A sum over dims that are known."""
    x = op.inputs[0]
    axes = reduced_dims(op, emit.rank(x), lambda _: emit.known(op, 1, "axes"))
    return (emit.reduce_sum(x, axes or (), keepdims=bool(integer(op, "keepdims", 1))),)


@stands_for("com.microsoft.Scale", purpose=Purpose.ARTIFACTS)
def scale(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """A tensor times a scalar, or divided by it."""
    x, factor = op.inputs
    factor = emit.reshape(emit.cast(factor, emit.dtype(x)), ())
    return (emit.div(x, factor) if integer(op, "scale_down", 0) else emit.mul(x, factor),)


@stands_for("com.microsoft.ConcatTraining", purpose=Purpose.ARTIFACTS)
def concat(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """Concat; also the sizes of its operands."""
    axis = axis_of(op, emit.rank(op.inputs[0]), 0)
    sizes = [emit.shape(name)[axis] for name in op.inputs]
    return emit.concat(op.inputs, axis), emit.ints(sizes, "sizes")


@stands_for("com.microsoft.SplitTraining", purpose=Purpose.ARTIFACTS)
def split(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """Split by sizes that are known, as slices."""
    x = op.inputs[0]
    axis = axis_of(op, emit.rank(x), 0)
    parts: list[str] = []
    start = 0
    for size in emit.known(op, 1, "sizes").tolist():
        starts, ends = [0] * emit.rank(x), list(emit.shape(x))
        starts[axis], ends[axis] = start, start + size
        parts.append(emit.slice(x, starts, ends))
        start += size
    return tuple(parts)


@stands_for("com.microsoft.ZeroGradient", purpose=Purpose.ARTIFACTS)
def zero(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """Zeros of the shape of the first operand."""
    return (emit.zeros(emit.shape(op.inputs[0]), op.inputs[0]),)


@stands_for("com.microsoft.Trilu", purpose=Purpose.ARTIFACTS)
def trilu(emit: Rewriting, op: Op) -> tuple[str, ...]:
    """Trilu of ONNX."""
    x = op.inputs[0]
    return (emit.one("Trilu", op.inputs, emit.shape(x), emit.dtype(x), attributes=attributes_of(op)),)
