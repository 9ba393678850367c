"""Transfers that go on at the same time, and the ports that they share.

Each port gives every transfer that goes through it an equal share of its bandwidth, and a transfer goes as fast as the
least of its shares. What a port gives and another, narrower one does not let through is given to nobody: to hand it on
(max-min fairness) every change would have to look at all transfers. A port that all of its transfers wait for is full
all the same, so that an exchange takes what its busiest port takes, as in the estimate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Flow:
    """A transfer while it goes on."""

    ports: tuple[int, ...]
    left_bytes: float
    """At the last change of its speed."""
    bytes_per_s: float = 0.0
    since_seconds: float = 0.0
    """When it last changed its speed."""
    end_seconds: float = 0.0
    """When its last byte leaves, unless the speed changes before."""


class Links:
    """The ports of a machine, and who goes through them."""

    def __init__(self, port_bytes_per_s: Sequence[float]) -> None:
        self._bytes_per_s = port_bytes_per_s
        self._through: dict[int, dict[Flow, None]] = {}
        """By port its flows, in the order in which they began."""

    def change(self, clock: float, started: Iterable[Flow], ended: Iterable[Flow]) -> list[Flow]:
        """Lets flows begin and end.

        Args:
            clock: seconds from the beginning; not before any earlier change.
            started: flows that begin.
            ended: flows that have none of their bytes left.

        Returns:
            The flows whose end is another one than before, those that begin included.
        """
        touched: dict[int, None] = {}
        for flow in ended:
            for port in flow.ports:
                del self._through[port][flow]
                touched[port] = None
        for flow in started:
            flow.since_seconds = clock
            for port in flow.ports:
                self._through.setdefault(port, {})[flow] = None
                touched[port] = None
        changed = []
        for flow in dict.fromkeys(flow for port in touched for flow in self._through[port]):
            speed = min(self._bytes_per_s[port] / len(self._through[port]) for port in flow.ports)
            if speed != flow.bytes_per_s:
                flow.left_bytes -= (clock - flow.since_seconds) * flow.bytes_per_s
                flow.bytes_per_s, flow.since_seconds = speed, clock
                flow.end_seconds = clock + max(0.0, flow.left_bytes) / speed
                changed.append(flow)
        return changed
