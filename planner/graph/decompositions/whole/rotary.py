"""ONNX Runtime's rotary embedding."""

from __future__ import annotations

import numpy as np

from planner.graph.core.attributes import integer
from planner.graph.core.emitter import Emitter
from planner.graph.core.model import Op
from planner.graph.decompositions.registry import Purpose, stands_for
from planner.graph.decompositions.rotary import angles, rotated


@stands_for("com.microsoft.RotaryEmbedding", purpose=Purpose.WHOLE)
def rotary_embedding(writer: Emitter, op: Op) -> tuple[str, ...]:
    """Rotations by the angles of each position, or by those of the positions that count from a first one.

    The runtime's kernel takes no notice of ``scale``.
    """
    x, positions, *tables = op.inputs[:4]
    shape, pairs = writer.shape(x), writer.shape(tables[0])[1]
    if writer.rank(positions) == 1:
        numbers = writer.constant(np.arange(shape[-2])[None], "numbers")
        positions = writer.add(numbers, positions, "counted")
    head_dim = 1
    if len(shape) == 3:
        heads = integer(op, "num_heads", 0) or shape[2] // (2 * pairs)
        x, head_dim = writer.reshape(x, (*shape[:2], heads, shape[2] // heads), "heads"), 2
    cosine, sine = angles(writer, tables, positions, head_dim)
    interleaved = bool(integer(op, "interleaved", 0))
    return (writer.reshape(rotated(writer, x, cosine, sine, "rotary", interleaved=interleaved), shape, "rotated"),)
