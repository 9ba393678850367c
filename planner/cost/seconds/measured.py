"""Compute time of an op, measured if a profile has it (ICML'18, section 5.1: t_C is measured, layer by layer).

For each worker's part of an op, by this rule:

- *measured*: the profile has the op with these very shapes. That is its time.
- *scaled*: it has the op with other shapes. The nearest of them is the one whose sizes differ least, by the sum of the
  absolute logarithms of their ratios over all dims of all inputs and outputs; its time is scaled by the work, which is
  the larger of operations and touched bytes.
- *roofline*: it has no such op. The time is the roofline of the topology's device, times the factor by which all
  measured ops together take longer than their rooflines.

How much of a plan is which is counted, so that it can be said.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.algebra.tiling import Tiling
from planner.cost.roofline import Roofline, computes_in, says_speed
from planner.cost.seconds.parts import DifferentPart, constants_text, different_parts
from planner.errors import UsageError
from planner.graph.core.model import DType
from planner.machine.device_profile import DeviceProfile, LocalShapes, MeasuredOp, Signature
from planner.machine.topology_file import Device
from planner.tdl.bind import BoundOp, Content


class From(enum.IntEnum):
    """The origin of a time, the surest first."""

    MEASURED = 0
    SCALED = 1
    ROOFLINE = 2


class Measured:
    """Seconds of ops by a profile."""

    def __init__(self, profile: DeviceProfile, devices: Sequence[Device]) -> None:
        """Looks the profile through.

        Args:
            profile: of one kind of device.
            devices: one for each worker.

        Raises:
            UsageError: the devices are of several kinds.
        """
        refuse_several_speeds(devices)
        self._profile = profile
        self._devices = devices
        self._exact = {(op.signature, op.shapes): op.seconds for op in profile.ops}
        self._alike: dict[Signature, list[MeasuredOp]] = {}
        for op in profile.ops:
            self._alike.setdefault(op.signature, []).append(op)
        self._by_strategy: dict[tuple[Content, str, Tiling], tuple[NDArray[np.float64], From]] = {}
        self._by_shapes: dict[tuple[Signature, LocalShapes], tuple[float, From]] = {}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """See ``Roofline.assumptions``; () while no time has come from a roofline."""
        if all(source is not From.ROOFLINE for _, source in self._by_shapes.values()):
            return ()
        return self._roofline.assumptions

    def seconds(self, op: BoundOp, strategy: Tiling, parts: int = 1) -> NDArray[np.float64]:
        """The time of an op on each worker, shape [workers]; see ``Roofline.seconds``.

        Raises:
            UsageError: the profile has no such op, and the topology does not say how fast its devices are.
        """
        return self.seconds_and_source(op, strategy)[0] / parts

    def seconds_and_source(self, op: BoundOp, strategy: Tiling) -> tuple[NDArray[np.float64], From]:
        """The same, and where the least sure of these times comes from."""
        key = (op.content, constants_text(op), strategy)
        if key not in self._by_strategy:
            self._by_strategy[key] = self._timed(op, strategy)
        return self._by_strategy[key]

    def _timed(self, op: BoundOp, strategy: Tiling) -> tuple[NDArray[np.float64], From]:
        worker_seconds = np.zeros(strategy.workers)
        least = From.MEASURED
        for part in different_parts(op, strategy):
            key = (part.signature, part.shapes)
            if key not in self._by_shapes:
                self._by_shapes[key] = self._part(part)
            seconds, source = self._by_shapes[key]
            worker_seconds[list(part.workers)] = seconds
            least = max(least, source)
        return worker_seconds, least

    def _part(self, part: DifferentPart) -> tuple[float, From]:
        exact = self._exact.get((part.signature, part.shapes))
        if exact is not None:
            return exact, From.MEASURED
        alike = self._alike.get(part.signature)
        if alike:
            nearest = min(alike, key=lambda op: (_distance(op.shapes, part.shapes), _sizes(op.shapes)))
            return nearest.seconds * part.work / max(1, nearest.work), From.SCALED
        if self.roofline_factor is None:
            raise UsageError(
                f"the profile has no {part.signature.op} like one of the model, and the topology does not say how fast "
                "its devices compute",
                hint="profile this model, or add compute: {float32: ...TFLOP/s} and memory_bandwidth: ...GB/s to the "
                "topology's device",
            )
        roofline = self._roofline.seconds_of(_dtype(part.signature), part.operations, part.touched_bytes)
        return self.roofline_factor * roofline, From.ROOFLINE

    @cached_property
    def _roofline(self) -> Roofline:
        return Roofline(self._devices)

    @cached_property
    def roofline_factor(self) -> float | None:
        """Measured seconds for a second of roofline; None where the topology says nothing of its devices' speed."""
        if not says_speed(self._devices[0]):
            return None
        by_roofline = math.fsum(
            self._roofline.seconds_of(_dtype(op.signature), op.operations, op.touched_bytes) for op in self._profile.ops
        )
        return math.fsum(op.seconds for op in self._profile.ops) / by_roofline if by_roofline else 1.0


def refuse_several_speeds(devices: Sequence[Device]) -> None:
    """Refuses devices that a profile, which is of one, cannot speak for.

    Raises:
        UsageError: the devices are of several kinds.
    """
    kinds = {device.speed for device in devices}
    if len(kinds) > 1:
        raise UsageError(
            f"the topology has devices of {len(kinds)} speeds, and a profile is of one device",
            hint="plan without a profile, or for devices that are equally fast",
        )


def compute_times(devices: Sequence[Device], profile: DeviceProfile | None) -> Roofline | Measured:
    """Times by a profile where there is one, else by the roofline.

    Args:
        devices: one for each worker.
        profile: what was measured, or None.

    Raises:
        UsageError: see ``Measured``.
    """
    return Roofline(devices) if profile is None else Measured(profile, devices)


def _sizes(shapes: LocalShapes) -> tuple[int, ...]:
    return tuple(size for shape in (*shapes.inputs, *shapes.outputs) for size in shape or ())


def _distance(op_shapes: LocalShapes, part_shapes: LocalShapes) -> float:
    pairs = zip(_sizes(op_shapes), _sizes(part_shapes), strict=True)
    # Sums in another order differ in the last bits: what is equal must compare as equal.
    return round(math.fsum(abs(math.log(max(1, first) / max(1, second))) for first, second in pairs), 9)


def _dtype(signature: Signature) -> DType | None:
    kinds = (*signature.inputs, *signature.outputs)
    return computes_in(None if kind is None else kind[0] for kind in kinds)
