"""Running sums and products of blocks, each joined with the total of the blocks before it."""

from __future__ import annotations

import numpy as np

from planner.graph.core.emitter import Emitter
from planner.graph.core.model import Attribute, Op
from planner.graph.decompositions.parts.blocks import are_worth_blocks, in_blocks, joined
from planner.graph.decompositions.registry import Purpose, stands_for


@stands_for("CumSum", purpose=Purpose.PARTS)
def cum_sum(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """The running sum of each worker's block, and to it the total of the blocks before (or after) it."""
    return _cumulative(emitter, op, total="ReduceSum", join="Add", neutral=0.0)


@stands_for("CumProd", purpose=Purpose.PARTS)
def cum_prod(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """The running product of each worker's block, times the total of the blocks before (or after) it."""
    return _cumulative(emitter, op, total="ReduceProd", join="Mul", neutral=1.0)


def _cumulative(emitter: Emitter, op: Op, *, total: str, join: str, neutral: float) -> tuple[str, ...] | None:
    x, stated = op.inputs[0], emitter.value(op.inputs[1])
    if stated is None:
        return None
    dim = int(stated.reshape(()).item()) % emitter.rank(x)
    size, dtype = emitter.shape(x)[dim], emitter.dtype(x)
    if not are_worth_blocks(emitter, x, dim):
        return None
    blocks = in_blocks(emitter, x, dim, neutral)

    def running(operand: str, axis: int, part: str, **attributes: Attribute) -> str:
        operands = (operand, emitter.constant(np.array(axis, np.int64), f"{part}.axis"))
        return emitter.one(op.op_type, operands, emitter.shape(operand), dtype, hint=part, attributes=attributes)

    inner = running(blocks.name, dim + 1, "own", **dict(op.attributes))
    totals = emitter.reduce(total, blocks.name, (dim + 1,), "totals")
    before = running(totals, dim, "before", exclusive=1, reverse=op.attribute("reverse") or 0)
    return (joined(emitter, emitter.each(join, "total", inner, before), dim, size, "running"),)
