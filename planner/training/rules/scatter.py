"""Gradient rules of operators that write at indices, or pick by them."""

from __future__ import annotations

import math

import numpy as np

from planner.graph.core.attributes import axis_of, integer, text
from planner.graph.core.builder import Builder
from planner.graph.core.model import Attribute
from planner.training.gradients.autodiff import Backward, Contributions, gradient


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
        positions = [
            emit.expand(
                emit.constant(
                    np.arange(lead[dim], dtype=np.int64).reshape([-1 if d == dim else 1 for d in range(len(lead) + 1)]),
                    f"range.{lead[dim]}",
                ),
                (*lead, 1),
            )
            for dim in range(batch_dims)
        ]
        indices = emit.concat([*positions, indices], len(lead))
    return [scatter_nd(emit, emit.zeros(emit.shape(context.x), context.dy), indices, context.dy)]


@gradient("ScatterElements", "ScatterND", inputs=(0, 2))
def scatter(context: Backward) -> Contributions:
    """For y = data with updates written at indices, or combined with what is there.

    none: ddata = dy with zeros written at the indices; add: ddata = dy. dupdates = dy picked at the indices (where none
    writes an index twice, ONNX does not say which update stays, nor does this rule).
    max, min: dy in equal shares to data and the updates that are y, as PyTorch has it.
    mul: dy times the product of the others, without a division by a factor that is 0.
    """
    places, dy = _Places(context), context.dy
    match text(context.op, "reduction", "none"):
        case "none":
            base = places.scattered("none", dy, places.emit.zeros(places.emit.shape(context.op.inputs[2]), dy))
            data, updates = base, places.picked(dy)
        case "add":
            data, updates = dy, places.picked(dy)
        case "mul":
            data, updates = _of_product(context, places)
        case _:
            data, updates = _of_extremum(context, places)
    return [data if context.wanted[0] else None, None, updates if context.wanted[2] else None]


class _Places:
    """The places of a scatter's updates."""

    def __init__(self, context: Backward) -> None:
        self.emit, self.op = context.builder, context.op
        self.by_element = self.op.op_type == "ScatterElements"
        rank = self.emit.rank(context.x)
        self.axis: dict[str, Attribute] = {"axis": axis_of(self.op, rank, 0)} if self.by_element else {}

    def picked(self, x: str) -> str:
        """What stands where each update goes."""
        gather = "GatherElements" if self.by_element else "GatherND"
        shape = self.emit.shape(self.op.inputs[2])
        return self.emit.one(gather, [x, self.op.inputs[1]], shape, self.emit.dtype(x), attributes=self.axis)

    def scattered(self, reduction: str, x: str, values: str) -> str:
        """``x`` with values combined where the updates go."""
        operands = [x, self.op.inputs[1], values]
        stated = self.axis if reduction == "none" else {**self.axis, "reduction": reduction}
        return self.emit.one(self.op.op_type, operands, self.emit.shape(x), self.emit.dtype(x), attributes=stated)


def _of_extremum(context: Backward, places: _Places) -> tuple[str, str]:
    emit, dy = context.builder, context.dy
    data, updates = context.x, context.op.inputs[2]
    zero, unit = emit.scalar(0.0, dy), emit.scalar(1.0, dy)
    is_data = emit.compare("Equal", data, context.y)
    is_update = emit.compare("Equal", updates, places.picked(context.y))
    hits = places.scattered("add", emit.where(is_data, unit, zero), emit.where(is_update, unit, zero))
    share = emit.div(dy, hits)
    return emit.where(is_data, share, zero), emit.where(is_update, places.picked(share), zero)


def _of_product(context: Backward, places: _Places) -> tuple[str, str]:
    """An update's others are all factors but itself: the product without zeros, if no other one is 0."""
    emit, dy = context.builder, context.dy
    data, updates = context.x, context.op.inputs[2]
    zero, unit = emit.scalar(0.0, dy), emit.scalar(1.0, dy)
    is_zero = emit.compare("Equal", updates, zero)
    factors = emit.where(is_zero, unit, updates)
    nonzero = places.scattered("mul", data, factors)
    count = places.scattered("add", emit.zeros(emit.shape(dy), dy), emit.where(is_zero, unit, zero))
    zero_count = emit.sub(places.picked(count), emit.where(is_zero, unit, zero))
    product = emit.where(emit.compare("Equal", zero_count, zero), emit.div(places.picked(nonzero), factors), zero)
    ones = emit.expand(unit, emit.shape(dy))
    return emit.mul(dy, places.scattered("mul", ones, updates)), emit.mul(places.picked(dy), product)


@gradient("OneHot", inputs=(2,))
def one_hot(context: Backward) -> Contributions:
    """For y = on where the index is, else off: don = Σ dy there, doff = Σ dy elsewhere; values is (off, on)."""
    emit, op, dy = context.builder, context.op, context.dy
    bits = emit.constant(np.array([0, 1], emit.dtype(dy).array_dtype), "off_and_on")
    axis: dict[str, Attribute] = {"axis": integer(op, "axis", -1)}
    hot = emit.one("OneHot", [*op.inputs[:2], bits], emit.shape(dy), emit.dtype(dy), attributes=axis)
    every = range(emit.rank(dy))
    on = emit.reduce_sum(emit.mul(dy, hot), every)
    off = emit.sub(emit.reduce_sum(dy, every), on)
    return [None, None, emit.concat([emit.reshape(part, (1,)) for part in (off, on)], 0)]


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
    picked = emit.one("Gather", [flat, op.inputs[1]], shape, emit.dtype(flat), attributes={"axis": 0})
    return [picked]
