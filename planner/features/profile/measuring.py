"""Measures parts of ops on a device: a model of the local op for each part that is new, made and run once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto

from planner.algebra.region import Region
from planner.algebra.tiling import Tiling
from planner.cost.seconds.parts import DifferentPart, different_parts
from planner.errors import TofuError
from planner.features.ops.execute import to_model
from planner.graph.core.indexed import lookup_of
from planner.graph.core.model import DType, Graph, Shape
from planner.machine.device_profile import (
    DeviceProfile,
    LocalShapes,
    MeasuredDevice,
    MeasuredOp,
    Signature,
    UnmeasuredOp,
    rounded_seconds,
)
from planner.progress import Progress
from planner.runtime.measure.ops import MeasureError, Stopwatch, made_up
from planner.tdl.bind import BoundOp
from planner.tdl.local import LocalOp
from planner.units import binary


@dataclass(frozen=True, slots=True)
class _Job:
    """A part that is to be measured."""

    graph: Graph
    op: BoundOp
    strategy: Tiling
    part: DifferentPart


class PartTimes:
    """The measurements so far.

    Args:
        stopwatch: of the device.
        limit_bytes: that the tensors of one op may take; larger ones are not measured.
        progress: told what is being done.
    """

    def __init__(self, stopwatch: Stopwatch, limit_bytes: int, progress: Progress) -> None:
        self._stopwatch = stopwatch
        self._limit_bytes = limit_bytes
        self._progress = progress
        self._measured: dict[tuple[Signature, LocalShapes], MeasuredOp] = {}
        self._unmeasured: dict[tuple[Signature, LocalShapes], UnmeasuredOp] = {}

    def measure(self, label: str, graph: Graph, strategies: Iterable[tuple[BoundOp, Tiling]]) -> int:
        """Measures those parts that have not been looked at before.

        Args:
            label: of the parts, for the progress.
            graph: that the ops are of.
            strategies: ops, and how they are divided.

        Returns:
            How many were new.
        """
        jobs: dict[tuple[Signature, LocalShapes], _Job] = {}
        for op, strategy in strategies:
            for part in different_parts(op, strategy):
                key = (part.signature, part.shapes)
                if key not in self._measured and key not in self._unmeasured:
                    jobs.setdefault(key, _Job(graph, op, strategy, part))
        for number, (key, job) in enumerate(jobs.items(), start=1):
            self._progress(f"{label}: {number} of {len(jobs)}, {job.part.signature.op} of {job.op.op.name}")
            try:
                self._measured[key] = self._run(job)
            except TofuError as error:
                self._unmeasured[key] = UnmeasuredOp(*key, error.what)
        return len(jobs)

    def profile(self, model: str, source: str) -> DeviceProfile:
        """All of it.

        Args:
            model: whose ops were measured.
            source: the command that measured.
        """
        watch = self._stopwatch
        device = MeasuredDevice(
            watch.kind, watch.device_name, watch.threads, watch.runtime, rounded_seconds(watch.overhead_seconds)
        )
        return DeviceProfile(device, model, source, tuple(self._measured.values()), tuple(self._unmeasured.values()))

    @property
    def unheard_of(self) -> tuple[str, ...]:
        """Ops of which no part could be measured."""
        measured = {signature for signature, _ in self._measured}
        return tuple(dict.fromkeys(signature.op for signature, _ in self._unmeasured if signature not in measured))

    def whole_seconds(self, op: BoundOp) -> float | None:
        """The time of the whole op; None where that could not be measured."""
        (part,) = different_parts(op, Tiling((), ()))
        measured = self._measured.get((part.signature, part.shapes))
        return None if measured is None else measured.seconds

    def _run(self, job: _Job) -> MeasuredOp:
        part = job.part
        held = _held_bytes(part)
        if held > self._limit_bytes:
            sizes = [binary(size) for size in (held, self._limit_bytes)]
            raise MeasureError(f"its tensors take {sizes[0]}, and {sizes[1]} may be taken")
        timing = self._stopwatch.time(*_model(job))
        seconds = rounded_seconds(timing.seconds)
        return MeasuredOp(part.signature, part.shapes, part.operations, part.touched_bytes, seconds, timing.runs)


def _held_bytes(part: DifferentPart) -> int:
    pairs = (
        *zip(part.signature.inputs, part.shapes.inputs, strict=True),
        *zip(part.signature.outputs, part.shapes.outputs, strict=True),
    )
    return sum(
        int(np.prod(shape, dtype=np.float64)) * kind[0].item_bytes
        for kind, shape in pairs
        if kind is not None and shape is not None
    )


def _model(job: _Job) -> tuple[ModelProto, dict[str, np.ndarray], dict[str, tuple[Shape, DType]]]:
    """A model of a part, numbers to run it on, and shape and dtype of what it makes."""
    op, graph = job.op, job.graph
    worker = job.part.workers[0]
    ranges = op.ranges(job.strategy)
    part = op.part(ranges, op.reads(ranges), worker)
    local = op.local_op(part)
    read = {name for node in local.nodes for name in node.inputs}
    produced = {name for node in local.nodes for name in node.outputs}
    arrays: dict[str, np.ndarray] = {}
    constants = dict(local.constants)
    for slot, (kind, shape) in enumerate(zip(job.part.signature.inputs, job.part.shapes.inputs, strict=True)):
        name, region = f"in{slot}", part.inputs[slot]
        if kind is None or shape is None or region is None or name not in read:
            continue
        # A constant is part of the model; other operands are made up within the size that they index.
        value = op.node.constants[slot]
        if value is not None:
            space = Region.whole(value.shape)
            constants[name] = value.reshape(space.shape)[region.within(space)].reshape(shape)
        else:
            lookup = lookup_of(graph, op.op, slot)
            arrays[name] = made_up(shape, kind[0], min(lookup.sizes) if lookup else None)
    outputs = {
        f"out{position}": (shape, kind[0])
        for position, (kind, shape) in enumerate(zip(job.part.signature.outputs, job.part.shapes.outputs, strict=True))
        if kind is not None and shape is not None and f"out{position}" in produced
    }
    return to_model(LocalOp(local.nodes, constants), arrays, outputs, graph.opset), arrays, outputs
