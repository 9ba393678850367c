"""Gradient rules of operators that write at indices, or pick by them."""

from __future__ import annotations

import math

import numpy as np

from planner.training.attributes import axis_of, integer, integers, refuse, text
from planner.training.autodiff import Backward, Contributions, gradient
from planner.training.builder import Builder


def scatter_nd(emit: Builder, zeros: str, indices: str, updates: str) -> str:
    """``zeros`` with updates added at index tuples."""
    operands = [zeros, indices, updates]
    return emit.one("ScatterND", operands, emit.shape(zeros), emit.dtype(zeros), attributes={"reduction": "add"})


@gradient("GatherND", inputs=(0,))
def gather_nd(context: Backward) -> Contributions:
    """For y = x at index tuples: dx = zeros with dy added there; batch_dims become leading indices."""
    emit, op = context.builder, context.op
    indices = op.inputs[1]
    batch_dims = integer(op, "batch_dims", 0)
    if batch_dims:
        lead = emit.shape(indices)[:-1]
        grid = np.stack(np.meshgrid(*(np.arange(size) for size in lead), indexing="ij"), axis=-1)[..., :batch_dims]
        positions = emit.constant(np.ascontiguousarray(grid.astype(np.int64)), f"positions.{op.name}")
        indices = emit.concat([positions, indices], len(lead))
    return [scatter_nd(emit, emit.zeros(emit.shape(context.x), context.dy), indices, context.dy)]


@gradient("ScatterElements", "ScatterND", inputs=(0, 2))
def scatter(context: Backward) -> Contributions:
    """For y = data with updates written or added at indices.

    Reduction none: ddata = dy with zeros written at the indices; add: ddata = dy. dupdates = dy picked at the indices
    (where none writes an index twice, ONNX does not say which update stays, nor does this rule).
    """
    emit, op, dy = context.builder, context.op, context.dy
    reduction = text(op, "reduction", "none")
    if reduction not in ("none", "add"):
        raise refuse(op, f"no gradient rule for reduction {reduction!r}, only for 'none' and 'add'")
    indices, updates = op.inputs[1:3]
    shape, dtype = emit.shape(dy), emit.dtype(dy)
    by_element = op.op_type == "ScatterElements"
    axis = {"axis": axis_of(op, len(shape), 0)} if by_element else {}
    data = picked = None
    if context.wanted[0]:
        data = dy
        if reduction == "none":
            operands = [dy, indices, emit.zeros(emit.shape(updates), dy)]
            data = emit.one(op.op_type, operands, shape, dtype, attributes=axis)
    if context.wanted[2]:
        gather = "GatherElements" if by_element else "GatherND"
        picked = emit.one(gather, [dy, indices], emit.shape(updates), dtype, attributes=axis)
    return [data, None, picked]


@gradient("TopK", inputs=(0,))
def top_k(context: Backward) -> Contributions:
    """For y = the k largest or smallest: dx = zeros with dy written where they were."""
    emit, op = context.builder, context.op
    if context.gradients[0] is None:
        return [None]
    shape = emit.shape(context.x)
    operands = [emit.zeros(shape, context.dy), op.outputs[1], context.dy]
    axis = axis_of(op, len(shape), -1)
    return [emit.one("ScatterElements", operands, shape, emit.dtype(context.dy), attributes={"axis": axis})]


@gradient("ReverseSequence", inputs=(0,))
def reverse_sequence(context: Backward) -> Contributions:
    """For y = x with the start of each sequence reversed: dx = dy with the same reversed again."""
    emit, op = context.builder, context.op
    operands = [context.dy, op.inputs[1]]
    return [
        emit.one(
            "ReverseSequence", operands, emit.shape(context.x), emit.dtype(context.dy), attributes=dict(op.attributes)
        )
    ]


@gradient("MaxUnpool", inputs=(0,))
def max_unpool(context: Backward) -> Contributions:
    """For y = zeros with x written at flat indices: dx = dy picked there (indices without overlap)."""
    emit, op = context.builder, context.op
    count = math.prod(emit.shape(context.dy))
    flat = emit.reshape(context.dy, (count,))
    shape = emit.shape(op.inputs[1])
    if integers(op, "pads", ()) and any(integers(op, "pads", ())):
        raise refuse(op, "no gradient rule with pads")
    picked = emit.one("Gather", [flat, op.inputs[1]], shape, emit.dtype(flat), attributes={"axis": 0})
    return [picked]
