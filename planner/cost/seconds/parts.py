"""Each worker's part of an op, in the terms of a profile: the op's signature and the shapes of its part.

Parts of equal shapes take equal time wherever they lie: a convolution at a border is known by its own attributes and by
the rows that it reads, not by the padding of its local op.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.algebra.region import Boxes
from planner.algebra.tiling import Tiling
from planner.cost.roofline import amounts
from planner.graph.core.model import Attribute, DType, GraphAttribute, Op, Shape, TensorAttribute
from planner.graph.step.deliveries import is_delivery
from planner.machine.device_profile import LocalShapes, Places, Signature, named
from planner.tdl.bind import BoundOp

_SHOWN_ELEMENTS = 16
"""Of a constant or an attribute; what has more is told by a digest."""


@dataclass(frozen=True, slots=True)
class DifferentPart:
    """The parts of those workers that read and make the same shapes."""

    signature: Signature
    shapes: LocalShapes
    workers: tuple[int, ...]
    """The first of them stands for all."""
    operations: int
    """Of each."""
    touched_bytes: int
    """By each."""

    @property
    def work(self) -> int:
        """See ``MeasuredOp.work``."""
        return max(self.operations, self.touched_bytes)


def different_parts(op: BoundOp, strategy: Tiling) -> tuple[DifferentPart, ...]:
    """The parts of an op that differ in shape, by their first workers; idle workers have none, nor has a delivery.

    Args:
        op: the op.
        strategy: how it is divided.
    """
    if is_delivery(op.op):
        return ()
    ranges = op.ranges(strategy)
    reads = op.reads(ranges)
    outputs = op.all_made(ranges)
    operations, touched = amounts(op, ranges, reads)
    inputs = [reads[slot].boxes if slot in reads else None for slot in range(len(op.node.input_shapes))]
    idle = ranges.elements == 0
    # Parts are told apart by the extents of all their boxes, not by where these lie: a profile knows shapes alone.
    sizes = [_extents(boxes) for boxes in (*inputs, *outputs) if boxes is not None]
    rows = np.concatenate(sizes, axis=1)
    alike: dict[bytes, list[int]] = {}
    for worker, row in enumerate(rows):
        if not idle[worker]:
            alike.setdefault(row.tobytes(), []).append(worker)
    attributes, constants = _attributes(op.op), constants_text(op)
    parts = []
    for workers in alike.values():
        worker = workers[0]
        signature, shapes = named(
            f"{op.op.domain}.{op.op.op_type}" if op.op.domain else op.op.op_type,
            attributes,
            constants,
            _places(op.node.input_dtypes, op.node.input_shapes, inputs, worker),
            _places(op.node.output_dtypes, op.node.output_shapes, outputs, worker),
        )
        work = round(float(operations[worker])), round(float(touched[worker]))
        parts.append(DifferentPart(signature, shapes, tuple(workers), *work))
    return tuple(parts)


def _extents(boxes: Boxes) -> NDArray[np.int64]:
    extents: NDArray[np.int64] = np.maximum(boxes.hi - boxes.lo, 0)
    return extents


def _places(
    dtypes: Sequence[DType | None], shapes: Sequence[Shape | None], boxes: Sequence[Boxes | None], worker: int
) -> Places:
    places: list[tuple[DType, Shape] | None] = []
    for dtype, shape, part in zip(dtypes, shapes, boxes, strict=True):
        region = None if part is None else part.region(worker)
        if dtype is None or region is None or region.is_empty:
            places.append(None)
        else:
            places.append((dtype, region.shape if shape else ()))
    return tuple(places)


def _attributes(op: Op) -> str:
    return ", ".join(f"{name}={_attribute(value)}" for name, value in op.attributes)


def _attribute(value: Attribute) -> str:
    if isinstance(value, GraphAttribute):
        return f"graph {_digest(value.content)}"
    if isinstance(value, TensorAttribute):
        return _array(value.array)
    return str(list(value)) if isinstance(value, tuple) else str(value)


def constants_text(op: BoundOp) -> str:
    """Known inputs that are no data, and single numbers: an exponent decides what a power takes."""
    return ", ".join(
        f"{slot}={_array(value)}"
        for slot, value in enumerate(op.node.constants)
        if value is not None and (slot not in op.read_slots or value.size == 1)
    )


def _array(value: np.ndarray) -> str:
    if value.size <= _SHOWN_ELEMENTS:
        return f"{value.dtype}{value.tolist()}"
    return f"{value.dtype}{list(value.shape)} {_digest(np.ascontiguousarray(value).tobytes())}"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
