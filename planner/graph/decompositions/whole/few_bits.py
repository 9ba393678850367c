"""Weights of few bits as numbers: several to a byte, each block of a row with a scale and a zero point."""

from __future__ import annotations

import math

import numpy as np

from planner.graph.core.attributes import integer
from planner.graph.core.emitter import Emitter
from planner.graph.core.model import DType, Op
from planner.graph.decompositions.registry import Purpose, stands_for


@stands_for("com.microsoft.MatMulNBits", purpose=Purpose.WHOLE)
def matmul_nbits(writer: Emitter, op: Op) -> tuple[str, ...]:
    """A times the transpose of the weights as numbers, and a bias."""
    a, packed, scale, zero, group, bias = [*op.inputs, "", "", ""][:6]
    bits, columns, depth = integer(op, "bits", 4), integer(op, "N"), integer(op, "K")
    block = integer(op, "block_size")
    group = group or writer.constant(np.arange(depth) // block, "block_of")
    scale = writer.reshape(scale, (columns, -(-depth // block)), "scales")
    rows = writer.reshape(packed, (columns, writer.tensor(packed).elements // columns), "rows")
    weights = unpacked(writer, rows, scale, zero, bits, group)
    y = writer.matmul(a, writer.transpose(weights, (1, 0), "weights.turned"), "product")
    return (writer.add(y, bias, "biased") if bias else y,)


def unpacked(writer: Emitter, packed: str, scale: str, zero: str, bits: int, block_of: str) -> str:
    """Weights as numbers of the scales' dtype.

    Args:
        writer: of the ops.
        packed: bytes of rows, [..., bytes].
        scale: [..., blocks].
        zero: in bytes of rows of their own, or a number for each scale; "" for the middle of what bits can say.
        bits: of a weight.
        block_of: the block of each weight of a row.
    """
    dtype, last, shape = writer.dtype(scale), writer.rank(scale) - 1, writer.shape(scale)
    sizes = (*shape[:-1], writer.tensor(block_of).elements)
    places = writer.reshape(block_of, sizes[-1:], "places")

    def of_blocks(numbers: str, part: str) -> str:
        return writer.one("Gather", (numbers, places), sizes, dtype, hint=part, attributes={"axis": last})

    if not zero:
        point = writer.scalar(2 ** (bits - 1), dtype, "middle")
    elif writer.dtype(zero) is DType.UINT8:
        size = writer.tensor(zero).elements // math.prod(shape[:-1])
        rows = writer.reshape(zero, (*shape[:-1], size), "zeros.rows")
        point = of_blocks(_numbers(writer, rows, bits, shape[-1], dtype, "zeros"), "points")
    else:
        point = of_blocks(writer.reshape(zero, shape, "zeros"), "points")
    numbers = _numbers(writer, packed, bits, sizes[-1], dtype, "numbers")
    return writer.mul(writer.sub(numbers, point, "shifted"), of_blocks(scale, "factors"), "weights")


def _numbers(writer: Emitter, packed: str, bits: int, count: int, dtype: DType, part: str) -> str:
    """The first numbers that bytes hold along their last dim, the lowest bits first."""
    *lead, size = writer.shape(packed)
    each = 8 // bits
    if each > 1:
        column = writer.reshape(packed, (*lead, size, 1), f"{part}.bytes")
        shifts = writer.constant(np.arange(0, 8, bits, dtype=np.uint8), f"{part}.shifts")
        shape = (*lead, size, each)
        shifted = writer.one(
            "BitShift", (column, shifts), shape, DType.UINT8, hint=f"{part}.shifted", attributes={"direction": "RIGHT"}
        )
        low = writer.each("Mod", f"{part}.low", shifted, writer.scalar(2**bits, DType.UINT8, f"{part}.radix"))
        packed = writer.reshape(low, (*lead, size * each), f"{part}.flat")
    packed = writer.slice(packed, (0,) * (len(lead) + 1), (*lead, count))
    return writer.cast(packed, dtype, part)
