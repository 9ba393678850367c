"""A cache's new rows written by their places, so that a worker keeps its positions and takes what falls into them."""

from __future__ import annotations

import numpy as np

from planner.graph.core.attributes import text
from planner.graph.core.emitter import Emitter
from planner.graph.core.model import DType, Op
from planner.graph.decompositions.parts.softmax import axis_of
from planner.graph.decompositions.registry import Purpose, stands_for


@stands_for("TensorScatter", purpose=Purpose.PARTS)
def tensor_scatter(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """A ScatterElements of places: each sample's rows from its start on, in a circle where the mode says so."""
    cache, update = op.inputs[:2]
    shape, axis = emitter.shape(update), axis_of(emitter, op, -2)
    if not emitter.tensor(update).elements or len(emitter.shape(cache)) != len(shape):
        return None
    line = [1] * len(shape)
    line[axis] = shape[axis]
    places = emitter.constant(np.arange(shape[axis], dtype=np.int64).reshape(line), "rows")
    if op.has_input(2):
        starts = emitter.cast(op.inputs[2], DType.INT64, "starts")
        starts = emitter.reshape(starts, (shape[0], *(1 for _ in shape[1:])), "starts.samples")
        places = emitter.each("Add", "places", starts, places)
    if text(op, "mode", "linear") == "circular":
        places = emitter.each("Mod", "circle", places, emitter.ints([emitter.shape(cache)[axis]], "size"))
    indices = emitter.one("Expand", (places, emitter.ints(shape, "shape")), shape, DType.INT64, hint="every")
    attributes = {"axis": axis}
    operands = (cache, indices, update)
    return (
        emitter.one("ScatterElements", operands, emitter.shape(cache), emitter.dtype(cache), attributes=attributes),
    )
