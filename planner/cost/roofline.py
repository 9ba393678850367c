"""Compute time of an op: the longest of its operations at the device's speed, its bytes at the memory's bandwidth, and
the launches of its kernels.

The first two are the roofline model (Williams, Waterman, Patterson, CACM 2009), with the share of the peaks that the
device's ``efficiency`` states. Launches bound the time as in Wang et al., Time-Based Roofline for Deep Learning
Performance Analysis (2020): while a long kernel runs, the host launches the next ones. ``planner.cost.kernels`` counts
kernels and their passes; both count only on devices with a stated launch. ICML'18 (section 5.1) measures each layer
instead; nothing here needs the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.algebra.region import Boxes
from planner.algebra.tiling import UNCUT, Tiling
from planner.cost.kernels import ONE_KERNEL, Kernels, kernels_of
from planner.graph.core.model import DType
from planner.graph.step.deliveries import is_delivery
from planner.machine.topology_file import Device
from planner.tdl.bind import BoundOp, Content, InputBoxes


@dataclass(frozen=True, slots=True)
class _Speeds:
    """One kind of device, with what it does not say filled in."""

    flop_per_s: dict[DType, float]
    bytes_per_s: float
    launch_seconds: float | None


class Roofline:
    """Seconds of ops on the devices of a plan's workers."""

    def __init__(self, devices: Sequence[Device]) -> None:
        """Prepares the speeds.

        Args:
            devices: one for each worker.
        """
        kinds = {device: number for number, device in enumerate(dict.fromkeys(devices))}
        self._kind = np.array([kinds[device] for device in devices])
        self._speeds: list[_Speeds] = []
        self._assumed: dict[str, None] = {}
        for device in kinds:
            self._speeds.append(self._filled(device))
        self._launches = any(speeds.launch_seconds is not None for speeds in self._speeds)
        self._seconds: dict[tuple[Content, Tiling, int], NDArray[np.float64]] = {}
        self._kernels: dict[Content, Kernels] = {}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions where devices state nothing and some op so far has asked."""
        return tuple(self._assumed)

    def seconds(self, op: BoundOp, strategy: Tiling, parts: int = 1) -> NDArray[np.float64]:
        """The time of an op on each worker, shape [workers].

        Args:
            op: the op.
            strategy: how it is divided.
            parts: workers among whom later cuts divide each worker's work evenly.
        """
        key = (op.content, strategy, parts)
        if key not in self._seconds:
            self._seconds[key] = self._computed(op, strategy, parts)
        return self._seconds[key]

    def _computed(self, op: BoundOp, strategy: Tiling, parts: int) -> NDArray[np.float64]:
        ranges = op.ranges(strategy)
        operations, touched = (amount / parts for amount in amounts(op, ranges, op.reads(ranges)))
        dtype = computes_in((*op.node.input_dtypes, *op.node.output_dtypes))
        kernels = self._kernels_of(op) if self._launches else ONE_KERNEL
        by_kind = np.array([self._longest(speeds, dtype, operations, touched, kernels) for speeds in self._speeds])
        seconds: NDArray[np.float64] = by_kind[self._kind, np.arange(ranges.workers)]
        return seconds

    def _kernels_of(self, op: BoundOp) -> Kernels:
        if op.content not in self._kernels:
            ranges = op.ranges(UNCUT)
            self._kernels[op.content] = kernels_of(op, float(amounts(op, ranges, op.reads(ranges))[1][0]))
        return self._kernels[op.content]

    def seconds_of(self, dtype: DType | None, operations: float, touched_bytes: float) -> float:
        """The time of so much work on the first worker's device.

        Args:
            dtype: that it computes in, ``computes_in``.
            operations: of a local op.
            touched_bytes: of a local op.
        """
        speeds = self._speeds[self._kind[0]]
        return float(self._longest(speeds, dtype, np.array(operations), np.array(touched_bytes), ONE_KERNEL))

    def _longest(
        self,
        speeds: _Speeds,
        dtype: DType | None,
        operations: NDArray[np.float64],
        touched_bytes: NDArray[np.float64],
        kernels: Kernels,
    ) -> NDArray[np.float64]:
        computing = operations / self._flop_per_s(speeds, dtype) if dtype is not None else np.zeros_like(operations)
        passing = touched_bytes / speeds.bytes_per_s
        longest: NDArray[np.float64]
        if speeds.launch_seconds is None:
            longest = np.maximum(computing, passing)
        else:
            # A worker without a part launches nothing.
            launching = kernels.count * speeds.launch_seconds * (touched_bytes > 0)
            longest = np.maximum(np.maximum(computing, passing * kernels.passes), launching)
        return longest

    def _filled(self, device: Device) -> _Speeds:
        if device.memory_bandwidth_bytes_per_s is None:
            self._assumed["the topology gives no memory_bandwidth: bytes touched take no time"] = None
        bandwidth = device.memory_bandwidth_bytes_per_s or float("inf")
        share = device.efficiency
        speeds = {dtype: share.compute * speed for dtype, speed in device.compute_flop_per_s}
        return _Speeds(speeds, share.memory * bandwidth, device.launch_seconds)

    def _flop_per_s(self, speeds: _Speeds, dtype: DType) -> float:
        """The speed for a type; float32's, or else the slowest that is given, where the type has none."""
        flop_per_s = speeds.flop_per_s
        if dtype in flop_per_s:
            return flop_per_s[dtype]
        if not flop_per_s:
            self._assumed["the topology gives no compute speed: operations take no time"] = None
            return float("inf")
        substitute = DType.FLOAT32 if DType.FLOAT32 in flop_per_s else min(flop_per_s, key=flop_per_s.__getitem__)
        self._assumed[f"the topology gives no speed for {dtype.value}: {substitute.value}'s was taken"] = None
        return flop_per_s[substitute]


def says_speed(device: Device) -> bool:
    """True if a topology says anything of how fast a device computes."""
    return bool(device.compute_flop_per_s) or device.memory_bandwidth_bytes_per_s is not None


def amounts(
    op: BoundOp, ranges: Boxes, reads: Mapping[int, InputBoxes]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Operations of each worker's part of an op, and the bytes that it touches; both of shape [workers].

    A shared delivery is a fetch and nothing besides. A lookup touches what it picks, not all that it may pick from; a
    scatter copies all of its data.

    Args:
        op: the op.
        ranges: the workers' parts of the iteration space.
        reads: what they read.
    """
    if is_delivery(op.op):
        return np.zeros(ranges.workers), np.zeros(ranges.workers)
    operations = op.operations(ranges)
    touched = np.zeros(ranges.workers)
    for slot, read in reads.items():
        dtype = op.node.input_dtypes[slot]
        assert dtype is not None, "an absent input is never read"
        elements = read.boxes.elements
        if not op.looked_up.isdisjoint(op.read_along(slot)):
            elements = np.minimum(elements, op.picked(ranges))
        touched += elements * dtype.item_bytes
    for position, dtype in enumerate(op.node.output_dtypes):
        if dtype is not None and op.analysis.outputs[position] is not None:
            touched += op.makes(ranges, position).elements * dtype.item_bytes
    return operations, touched


def computes_in(dtypes: Iterable[DType | None]) -> DType | None:
    """The type whose speed counts: of the first floating-point input, or else output; None for integers.

    Work on integers (indices, masks) is taken to be bound by memory.

    Args:
        dtypes: of an op's inputs and outputs, in their order; None where there is none.
    """
    return next((dtype for dtype in dtypes if dtype is not None and dtype.is_float), None)
