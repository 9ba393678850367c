"""The estimated time of an iteration of a plan on a machine: data only (``planner.cost.seconds`` makes it)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class LevelTraffic:
    """The traffic over one level of the interconnect."""

    name: str
    """The name of the level; for a device graph, the bandwidth of the routes."""
    moved_bytes: int
    """The bytes in an iteration, over all workers."""
    busy_seconds: float
    """The time in use of the busiest of the level's links, exchange by exchange."""


@dataclass(frozen=True, slots=True)
class ComputeSources:
    """The share of the compute that was measured (``planner.cost.seconds.measured`` has the rule)."""

    device: str
    """The measured device, and its runtime."""
    measured_ops: int
    """Ops all of whose parts were measured in these very shapes."""
    scaled_ops: int
    """Ops some part of which was scaled from the nearest measured shapes."""
    roofline_ops: int
    """Ops some part of which was not measured in any shape: by the roofline, scaled."""
    measured_seconds: float
    """The measured part of ``compute_seconds``; so are the next two, and the three add up to it."""
    scaled_seconds: float
    roofline_seconds: float
    roofline_factor: float | None = None
    """The time of all measured ops together, over their rooflines; None where the topology has no speeds."""

    @property
    def ops(self) -> int:
        return self.measured_ops + self.scaled_ops + self.roofline_ops


@dataclass(frozen=True, slots=True)
class TimeEstimate:
    """An iteration's time on a topology: an estimate, and never a measurement."""

    told: ClassVar = (
        "estimated_seconds topology devices compute_seconds transfer_seconds synchronisation_seconds "
        "overlapped_seconds levels worker_compute_seconds worker_fetch_seconds assumptions sources"
    )

    topology: str
    """Name of the topology."""
    devices: tuple[int, ...]
    """The device of each worker."""
    compute_seconds: float
    """The compute time of the slowest worker, op by op (ICML'18, section 5.1: t_C)."""
    transfer_seconds: float
    """The time of all exchanges but synchronisation (t_X)."""
    synchronisation_seconds: float
    """The time of the exchanges of gradients, state and next state (t_S)."""
    overlapped_seconds: float
    """The time if transfers go on beside the computing that does not wait for them."""
    levels: tuple[LevelTraffic, ...]
    worker_compute_seconds: tuple[float, ...]
    worker_fetch_seconds: tuple[float, ...]
    assumptions: tuple[str, ...]
    """The assumptions where the topology states nothing."""
    sources: ComputeSources | None = None
    """The sources of the compute times; None: all of it is by the roofline."""

    @property
    def estimated_seconds(self) -> float:
        """One thing after the other (ICML'18, section 5.1, equation 1)."""
        return self.compute_seconds + self.transfer_seconds + self.synchronisation_seconds
