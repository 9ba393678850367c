"""The largest or smallest elements of blocks, of which the largest or smallest are those of the whole."""

from __future__ import annotations

import math

import numpy as np

from planner.graph.core.emitter import Emitter
from planner.graph.core.model import Attribute, DType, Op
from planner.graph.decompositions.parts.blocks import are_worth_blocks, in_blocks, merged, numbered
from planner.graph.decompositions.parts.softmax import axis_of
from planner.graph.decompositions.registry import Purpose, stands_for

_RANKED = (
    DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16, DType.INT64, DType.INT32, DType.INT8, DType.UINT8
)  # fmt: skip
"""Dtypes that the runtime ranks and fills up, those of 16 bits by way of float32."""


@stands_for("TopK", purpose=Purpose.PARTS)
def top_k(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """The k largest (or smallest) of each worker's block, and of these candidates the k largest, with their places.

    Of equal ones the first of a block comes first, and an earlier block's before a later one's, as in the whole. None
    where the order is left open (``sorted`` 0), which nobody could compare with what the runtime makes of the whole op;
    where k is not known; where there are as many candidates as elements; and before opset 11, whose Pad is another.
    """
    x, dim = op.inputs[0], axis_of(emitter, op, -1)
    shape, dtype = emitter.shape(x), emitter.dtype(x)
    stated = emitter.value(op.inputs[1]) if op.has_input(1) else None
    if stated is None or emitter.opset < 11 or dtype not in _RANKED or not are_worth_blocks(emitter, x, dim):
        return None
    count = int(stated.reshape(()).item())
    # Of as many rows as the dim is long, each worker takes some.
    if emitter.tensor(x).elements >= shape[dim] ** 2:
        return None
    if count * emitter.workers >= shape[dim] or (count > 1 and not op.attribute("sorted", 1)):
        return None
    blocks = in_blocks(emitter, x, dim, _last(dtype, is_largest=bool(op.attribute("largest", 1))))

    def ranked(operand: str, axis: int, k: int, part: str) -> tuple[str, ...]:
        before = emitter.shape(operand)
        sizes = (*before[:axis], k, *before[axis + 1 :])
        attributes: dict[str, Attribute] = {**dict(op.attributes), "axis": axis}
        operands = (operand, emitter.ints([k], f"{part}.k"))
        names = f"{part} {part}.places"
        return emitter.emit("TopK", operands, (sizes, sizes), (dtype, DType.INT64), hint=names, attributes=attributes)

    values, places = ranked(blocks.name, dim + 1, min(count, blocks.places), "own")
    candidates = merged(emitter, values, dim, "candidates")
    everywhere = emitter.each("Add", "own.positions", places, numbered(emitter, blocks, "first"))
    positions = merged(emitter, everywhere, dim, "positions")
    extremes, ranks = ranked(candidates, dim, count, "found")
    picked = emitter.one(
        "GatherElements", (positions, ranks), emitter.shape(ranks), DType.INT64, hint="picked", attributes={"axis": dim}
    )
    return extremes, picked


def _last(dtype: DType, *, is_largest: bool) -> float:
    """What ranks behind all others, or equal to the last of them."""
    if dtype.is_float:
        return -math.inf if is_largest else math.inf
    limits = np.iinfo(dtype.array_dtype)
    return int(limits.min if is_largest else limits.max)
