"""Convolutions that leave out rows: a Slice picks what they read, so that nothing else is brought to anybody.

Regions are boxes. Of an image that a window of one element reads at every other row and column, a quarter is read, and
the boxes of what workers read hold all of it; so the rest would move with it.
"""

from __future__ import annotations

from planner.graph.core.attributes import integers
from planner.graph.core.emitter import Emitter
from planner.graph.core.model import Attribute, Op
from planner.graph.decompositions.registry import Purpose, stands_for


@stands_for("Conv", purpose=Purpose.PARTS)
def conv(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """Along dims with windows of one element a Slice with the stride as its step, and the convolution of what it picks.

    None where no such dim has a stride, or one has padding. Where a window has more elements and the stride is larger
    still, rows are left out too, but no Slice picks several elements of each step: there the convolution stays.
    """
    rank = emitter.rank(op.inputs[0]) - 2
    kernel = integers(op, "kernel_shape", emitter.shape(op.inputs[1])[2:])
    strides, pads = integers(op, "strides", (1,) * rank), integers(op, "pads", (0,) * (2 * rank))
    picked = [dim for dim in range(rank) if kernel[dim] == 1 and strides[dim] > 1]
    if not picked or any(pads[dim] or pads[dim + rank] for dim in picked):
        return None
    read = emitter.every(op.inputs[0], {dim + 2: strides[dim] for dim in picked})
    stated: dict[str, Attribute] = dict(op.attributes)
    stated["strides"] = tuple(1 if dim in picked else strides[dim] for dim in range(rank))
    y = op.outputs[0]
    inputs = (read, *op.inputs[1:])
    return (emitter.one("Conv", inputs, emitter.shape(y), emitter.dtype(y), hint="conv", attributes=stated),)
