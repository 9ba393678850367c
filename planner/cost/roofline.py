"""How long an op computes: the longer of its operations at the device's speed and its bytes at the memory's bandwidth.

That is the roofline model (Williams, Waterman, Patterson, CACM 2009). ICML'18 (section 5.1) measures each layer
instead; nothing here needs the machine. Launching a kernel takes no time here, and no kernel falls short of the peak,
so what comes out is less than what a run takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.algebra.tiling import Tiling
from planner.config import Device
from planner.graph.model import DType
from planner.tdl.bind import BoundOp


@dataclass(frozen=True, slots=True)
class _Speeds:
    """One kind of device, with what it does not say filled in."""

    flop_per_s: dict[DType, float]
    bytes_per_s: float


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
        self._known: dict[tuple[object, Tiling], NDArray[np.float64]] = {}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the devices do not say and some op so far has asked for."""
        return tuple(self._assumed)

    def seconds(self, bound: BoundOp, strategy: Tiling) -> NDArray[np.float64]:
        """Of an op on each worker, shape [workers]."""
        key = (bound.content, strategy)
        if key not in self._known:
            self._known[key] = self._computed(bound, strategy)
        return self._known[key]

    def _computed(self, bound: BoundOp, strategy: Tiling) -> NDArray[np.float64]:
        ranges = bound.ranges(strategy)
        operations = bound.flop * (ranges.elements / max(1, bound.whole_points))
        touched = np.zeros(ranges.workers)
        for slot, read in bound.reads(ranges).items():
            dtype = bound.node.input_dtypes[slot]
            assert dtype is not None, "an absent input is never read"
            touched += read.boxes.elements * dtype.item_bytes
        for position, dtype in enumerate(bound.node.output_dtypes):
            if dtype is not None and bound.analysis.outputs[position] is not None:
                touched += bound.makes(ranges, position).elements * dtype.item_bytes
        dtype = _computes_in(bound)
        by_kind = np.array(
            [
                np.maximum(
                    operations / self._flop_per_s(speeds, dtype) if dtype is not None else 0.0,
                    touched / speeds.bytes_per_s,
                )
                for speeds in self._speeds
            ]
        )
        found: NDArray[np.float64] = by_kind[self._kind, np.arange(ranges.workers)]
        return found

    def _filled(self, device: Device) -> _Speeds:
        if device.memory_bandwidth_bytes_per_s is None:
            self._assumed["the topology gives no memory_bandwidth: bytes touched take no time"] = None
        bandwidth = device.memory_bandwidth_bytes_per_s or float("inf")
        return _Speeds(dict(device.compute_flop_per_s), bandwidth)

    def _flop_per_s(self, speeds: _Speeds, dtype: DType) -> float:
        """The speed for a type; float32's, or else the slowest that is given, where the type has none."""
        given = speeds.flop_per_s
        if dtype in given:
            return given[dtype]
        if not given:
            self._assumed["the topology gives no compute speed: operations take no time"] = None
            return float("inf")
        like = DType.FLOAT32 if DType.FLOAT32 in given else min(given, key=lambda known: given[known])
        self._assumed[f"the topology gives no speed for {dtype.value}: {like.value}'s was taken"] = None
        return given[like]


def _computes_in(bound: BoundOp) -> DType | None:
    """The type whose speed counts: of the first floating-point input, or else output; None for integers.

    Work on integers (indices, masks) is taken to be bound by memory.
    """
    types = (*bound.node.input_dtypes, *bound.node.output_dtypes)
    return next((dtype for dtype in types if dtype is not None and dtype.is_float), None)
