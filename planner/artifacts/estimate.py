"""The estimated time of an iteration of a plan on a machine: data only (``planner.cost.seconds`` makes it)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class LevelTraffic:
    """What crosses one level of the interconnect."""

    name: str
    """Of the level; for a device graph, the bandwidth of the routes."""
    moved_bytes: int
    """In an iteration, over all workers."""
    busy_seconds: float
    """How long the busiest of the level's links is in use, exchange by exchange."""


@dataclass(frozen=True, slots=True)
class ComputeSources:
    """How much of the computing is by measurements (``planner.cost.seconds.measured`` has the rule)."""

    device: str
    """What was measured on, and by which runtime."""
    measured_ops: int
    """Ops all of whose parts were measured in these very shapes."""
    scaled_ops: int
    """Ops some part of which was scaled from the nearest measured shapes."""
    roofline_ops: int
    """Ops some part of which was not measured in any shape: by the roofline, scaled."""
    measured_seconds: float
    """Of ``compute_seconds``; so are the next two, and the three add up to it."""
    scaled_seconds: float
    roofline_seconds: float
    roofline_factor: float | None = None
    """What all measured ops together take, over their rooflines; None where the topology has no speeds."""

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
    """Of the slowest worker, op by op (ICML'18, section 5.1: t_C)."""
    transfer_seconds: float
    """Of all exchanges that are no synchronisation (t_X)."""
    synchronisation_seconds: float
    """Of the exchanges of gradients, state and next state (t_S)."""
    overlapped_seconds: float
    """Where transfers go on beside the computing that does not wait for them."""
    levels: tuple[LevelTraffic, ...]
    worker_compute_seconds: tuple[float, ...]
    worker_fetch_seconds: tuple[float, ...]
    assumptions: tuple[str, ...]
    """What the topology does not say, and what was taken instead."""
    sources: ComputeSources | None = None
    """Of the computing; None: all of it is by the roofline."""

    @property
    def estimated_seconds(self) -> float:
        """One thing after the other (ICML'18, section 5.1, equation 1)."""
        return self.compute_seconds + self.transfer_seconds + self.synchronisation_seconds
