"""Gradient rules of operators that move elements without computing: each sends dy back to where it came from."""

from __future__ import annotations

import numpy as np

from planner.graph.core.attributes import axis_of, integers, text
from planner.graph.core.builder import Builder
from planner.graph.core.model import DType
from planner.training.gradients.autodiff import Backward, Contributions, gradient
from planner.training.rules.linear_maps import padded_by
from planner.training.rules.scatter import scatter_nd


@gradient("Reshape", "Flatten", inputs=(0,))
def reshape(context: Backward) -> Contributions:
    """Gives dx = dy in x's shape."""
    return [context.builder.reshape(context.dy, context.builder.shape(context.x))]


@gradient("Transpose")
def transpose(context: Backward) -> Contributions:
    """Gives dx = dy with the inverse permutation."""
    rank = context.builder.rank(context.x)
    perm = integers(context.op, "perm", tuple(reversed(range(rank))))
    return [context.builder.transpose(context.dy, [perm.index(dim) for dim in range(rank)])]


@gradient("Squeeze", inputs=(0,))
def squeeze(context: Backward) -> Contributions:
    """Gives dx = dy with the dims put back."""
    emit = context.builder
    shape = emit.shape(context.x)
    axes = [dim for dim, size in enumerate(shape) if size == 1]
    if context.has_input(1):
        axes = [axis % len(shape) for axis in emit.known(context.op, 1, "axes").tolist()]
    return [emit.unsqueeze(context.dy, axes)]


@gradient("Unsqueeze", inputs=(0,))
def unsqueeze(context: Backward) -> Contributions:
    """Gives dx = dy without the new dims."""
    emit = context.builder
    rank = emit.rank(context.dy)
    return [emit.squeeze(context.dy, [axis % rank for axis in emit.known(context.op, 1, "axes").tolist()])]


@gradient("Concat")
def concat(context: Backward) -> Contributions:
    """Each dx is its stretch of dy."""
    emit, dy = context.builder, context.dy
    axis = axis_of(context.op, emit.rank(dy), 0)
    parts: list[str | None] = []
    offset = 0
    for name, wanted in zip(context.op.inputs, context.wanted, strict=True):
        end = offset + emit.shape(name)[axis]
        starts, ends = [0] * emit.rank(dy), list(emit.shape(dy))
        starts[axis], ends[axis] = offset, end
        parts.append(emit.slice(dy, starts, ends) if wanted else None)
        offset = end
    return parts


@gradient("Split", inputs=(0,))
def split(context: Backward) -> Contributions:
    """Gives dx = the dys one after the other, zeros for those that do not matter."""
    emit = context.builder
    axis = axis_of(context.op, emit.rank(context.x), 0)
    parts = [
        emit.zeros(emit.shape(name), context.x) if dy is None else dy
        for name, dy in zip(context.op.outputs, context.gradients, strict=True)
    ]
    return [emit.concat(parts, axis)]


@gradient("Slice", inputs=(0,))
def slices(context: Backward) -> Contributions:
    """For y = x[start:end:step]: dx is dy at those places, zeros elsewhere.

    Steps other than ±1 are undone by putting zeros between the elements (Unsqueeze, Pad, Reshape); negative ones by
    reading dy backwards first.
    """
    emit, op = context.builder, context.op
    shape = emit.shape(context.x)
    starts, ends = emit.known(op, 1, "starts").tolist(), emit.known(op, 2, "ends").tolist()
    axes = emit.known(op, 3, "axes").tolist() if context.has_input(3) else tuple(range(len(starts)))
    steps = emit.known(op, 4, "steps").tolist() if context.has_input(4) else (1,) * len(starts)
    first, stride = [0] * len(shape), [1] * len(shape)
    backwards: list[int] = []
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        dim = axis % len(shape)
        indices = _slice_indices(start, end, step, shape[dim])
        if not len(indices):
            return [None]
        first[dim], stride[dim] = min(indices[0], indices[-1]), abs(step)
        if step < 0:
            backwards.append(dim)
    placed = _spread(emit, emit.reverse(context.dy, sorted(backwards)), stride)
    after = [size - start - width for size, start, width in zip(shape, first, emit.shape(placed), strict=True)]
    return [emit.pad(placed, first, after)]


def _slice_indices(start: int, end: int, step: int, size: int) -> range:
    """The indices that ONNX's Slice takes: as Python's, but that a start before the first is the first at any step."""
    if step < 0 and start < -size:
        start = -size
    return range(*slice(start, end, step).indices(size))


def _spread(emit: Builder, x: str, stride: list[int]) -> str:
    """Put ``stride - 1`` zeros between the elements of each dim."""
    for dim, step in enumerate(stride):
        size = emit.shape(x)[dim]
        if step == 1 or size == 1:
            continue
        wide = emit.unsqueeze(x, [dim + 1])
        zeros = [0] * emit.rank(wide)
        after = list(zeros)
        after[dim + 1] = step - 1
        wide = emit.pad(wide, zeros, after)
        shape = list(emit.shape(x))
        shape[dim] = size * step
        merged = emit.reshape(wide, tuple(shape))
        shape[dim] -= step - 1
        x = emit.slice(merged, [0] * len(shape), shape)
    return x


@gradient("Expand", inputs=(0,))
def expand(context: Backward) -> Contributions:
    """Gives dx = dy summed over the repeated dims."""
    return [context.builder.unbroadcast(context.dy, context.builder.shape(context.x))]


@gradient("Pad", inputs=(0, 2))
def pad(context: Backward) -> Contributions:
    """Constant mode: dx is dy without the border; zeros where a negative pad had cut x. dvalue = Σ dy of the border.

    Modes edge, reflect and wrap repeat elements: the gradients of the copies are added up (see ``linear_maps``).
    """
    emit, op = context.builder, context.op
    mode = text(op, "mode", "constant")
    rank = emit.rank(context.x)
    pads = emit.known(op, 1, "pads").tolist()
    axes = emit.known(op, 3, "axes").tolist() if context.has_input(3) else tuple(range(rank))
    before, after = [0] * rank, [0] * rank
    for index, axis in enumerate(axes):
        before[axis % rank], after[axis % rank] = -pads[index], -pads[len(axes) + index]
    if mode != "constant":
        added = [[-width for width in side] for side in (before, after)]
        return [padded_by(emit, context.dy, emit.shape(context.x), added[0], added[1], mode)]
    inner = emit.pad(context.dy, before, after) if context.wanted[0] or context.has_input(2) else None
    value = None
    if context.has_input(2) and context.wanted[2]:
        assert inner is not None, "made just above"
        every = range(rank)
        cut = [min(0, width) for width in before], [min(0, width) for width in after]
        interior = emit.pad(context.dy, *cut)
        border = emit.sub(emit.reduce_sum(context.dy, every), emit.reduce_sum(interior, every))
        value = emit.reshape(border, emit.shape(op.inputs[2]))
    return [inner if context.wanted[0] else None, None, value]


@gradient("Gather", inputs=(0,))
def gather(context: Backward) -> Contributions:
    """For y = x[indices] along ``axis``: dx = zeros with dy added at the indices (ScatterND, which adds along dim 0).

    Where the indices are known and follow one another (one position picked, a table read from its start), dx is dy
    between zeros, and nothing is scattered.
    """
    emit, op, dy = context.builder, context.op, context.dy
    indices = op.inputs[1]
    shape = emit.shape(context.x)
    axis = axis_of(op, len(shape), 0)
    start = _run(emit.value(indices), shape[axis])
    if start is not None:
        count = int(np.prod(emit.shape(indices), dtype=np.int64))
        flat = emit.reshape(dy, (*shape[:axis], count, *shape[axis + 1 :]))
        before, after = [0] * len(shape), [0] * len(shape)
        before[axis], after[axis] = start, shape[axis] - start - count
        return [emit.pad(flat, before, after)]
    rank_of_indices = emit.rank(indices)
    picked = list(range(axis, axis + rank_of_indices))
    outer = [dim for dim in range(emit.rank(dy)) if dim not in picked]
    updates = emit.transpose(dy, [*picked, *outer])
    moved = (shape[axis], *shape[:axis], *shape[axis + 1 :])
    column = emit.cast(emit.unsqueeze(indices, [rank_of_indices]), DType.INT64)
    total = scatter_nd(emit, emit.zeros(moved, dy), column, updates)
    return [emit.transpose(total, [*range(1, axis + 1), 0, *range(axis + 1, len(shape))])]


def _run(indices: np.ndarray | None, size: int) -> int | None:
    """Where indices that follow one another start; None if they do not or are not known."""
    if indices is None or indices.size == 0:
        return None
    flat = np.where(indices < 0, indices + size, indices).reshape(-1)
    return int(flat[0]) if bool((np.diff(flat) == 1).all()) else None


@gradient("GatherElements", inputs=(0,))
def gather_elements(context: Backward) -> Contributions:
    """For y = x at one index for each element along ``axis``: dx = zeros with dy added there."""
    emit, op, dy = context.builder, context.op, context.dy
    shape = emit.shape(context.x)
    operands = [emit.zeros(shape, dy), op.inputs[1], dy]
    axis = axis_of(op, len(shape), 0)
    return [emit.one("ScatterElements", operands, shape, emit.dtype(dy), attributes={"axis": axis, "reduction": "add"})]
