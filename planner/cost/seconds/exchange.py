"""Time of an exchange: fetches that go on at the same time, and the ports at which their bytes queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.artifacts.program import Fetch, Program
from planner.machine.routes import Interconnect


@dataclass(frozen=True, slots=True)
class Exchange:
    """The fetches of one name on all workers: one delivery, or one phase of it."""

    name: str
    tensor: str
    moved: Mapping[tuple[int, int], int]
    """Bytes by (receiver, sender), workers; nobody receives from himself."""

    @property
    def receivers(self) -> tuple[int, ...]:
        """The workers that take something, ascending."""
        return tuple(sorted({receiver for receiver, _ in self.moved}))

    def share_of(self, workers: int) -> float:
        """The share of the workers that is busy, where other lanes' exchanges keep the others so meanwhile.

        Args:
            workers: how many there are.
        """
        return min(len(self.receivers), len({sender for _, sender in self.moved})) / workers


@dataclass(frozen=True, slots=True)
class ExchangeTime:
    """The time of an exchange."""

    seconds: float
    """The busiest port's bytes at its bandwidth, and the longest latency."""
    level_bytes: Mapping[str, int]
    level_seconds: Mapping[str, float]
    """By level, the busiest of its ports."""
    latency_seconds: float = 0.0
    """Of the seconds, the latency."""

    def scaled(self, share: float) -> ExchangeTime:
        """The part of it that counts where several exchanges go on beside each other."""
        by_level = {level: seconds * share for level, seconds in self.level_seconds.items()}
        return ExchangeTime(self.seconds * share, self.level_bytes, by_level, self.latency_seconds * share)


def exchanges(program: Program) -> list[Exchange]:
    """Every exchange in which something crosses between workers, in the order in which they first occur."""
    moved: dict[tuple[str, str], dict[tuple[int, int], int]] = {}
    for worker in program.workers:
        for step in worker.steps:
            if isinstance(step, Fetch):
                buffer = worker.buffers[step.target]
                pairs = moved.setdefault((step.name, buffer.tensor), {})
                for sender, amount in step.taken_bytes(buffer.dtype.item_bytes).items():
                    if sender != worker.worker:
                        pairs[worker.worker, sender] = pairs.get((worker.worker, sender), 0) + amount
    return [Exchange(name, tensor, pairs) for (name, tensor), pairs in moved.items() if pairs]


class ExchangeTimes:
    """Times of exchanges on a machine; equal exchanges are timed once."""

    def __init__(self, interconnect: Interconnect, devices: Sequence[int]) -> None:
        """Prepares nothing.

        Args:
            interconnect: of the machine.
            devices: the device of each worker.
        """
        self._interconnect = interconnect
        self._devices = devices
        self._times: dict[tuple[tuple[tuple[int, int], int], ...], ExchangeTime] = {}

    def of(self, moved: Mapping[tuple[int, int], int]) -> ExchangeTime:
        """The time of an exchange.

        Args:
            moved: bytes by (receiver, sender).
        """
        key = tuple(sorted(moved.items()))
        if key not in self._times:
            self._times[key] = self._timed(key)
        return self._times[key]

    def _timed(self, moved: Sequence[tuple[tuple[int, int], int]]) -> ExchangeTime:
        loads: dict[tuple[str, int], int] = {}
        level_bytes: dict[str, int] = {}
        latency = 0.0
        for (receiver, sender), amount in moved:
            route = self._interconnect.route(self._devices[sender], self._devices[receiver])
            level_bytes[route.level] = level_bytes.get(route.level, 0) + amount
            latency = max(latency, route.latency_seconds)
            for port in route.ports:
                loads[route.level, port] = loads.get((route.level, port), 0) + amount
        bandwidths = self._interconnect.port_bytes_per_s
        level_seconds: dict[str, float] = dict.fromkeys(level_bytes, 0.0)
        by_port: dict[int, int] = {}
        for (level, port), load in loads.items():
            level_seconds[level] = max(level_seconds[level], load / bandwidths[port])
            by_port[port] = by_port.get(port, 0) + load
        busiest = max((load / bandwidths[port] for port, load in by_port.items()), default=0.0)
        return ExchangeTime(busiest + latency, level_bytes, level_seconds, latency)
