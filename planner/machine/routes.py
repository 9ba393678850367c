"""Routes between any two devices of a machine: the route, its bandwidth and latency, and who shares it.

A *port* is what transfers queue at: one direction of a link of a device graph; at a level of a tree of levels, the
way out of a device (or of the devices that share one adapter) and the way in. Routes of a device graph are the widest
paths (ICML'18, section 4, has bandwidths between pairs; where a pair has no link of its own, other nodes pass on what
it sends): the largest least bandwidth, then the fewest links, then the least latency.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.machine.topology_file import DeviceGraph, DeviceLink, Machine, Topology
from planner.units import Quantity, to_text


@dataclass(frozen=True, slots=True)
class Route:
    """The route of bytes from one device to another."""

    ports: tuple[int, ...]
    """What the transfer queues at."""
    bandwidth_bytes_per_s: float
    """The least of its ports'."""
    latency_seconds: float
    level: str
    """What a report calls this kind of route: the level's name; for a device graph, its bandwidth."""


class Interconnect:
    """The routes between the devices of a machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._routes: dict[tuple[int, int], Route] = {}
        if isinstance(machine, Topology):
            self.port_bytes_per_s, self._first_port, self._group = _level_ports(machine)
        else:
            self.port_bytes_per_s = [link.bandwidth_bytes_per_s for link in machine.links for _ in range(2)]

    def route(self, sender: int, receiver: int) -> Route:
        """The route from one device to another; they must not be the same."""
        assert sender != receiver, "nothing is sent from a device to itself"
        if (sender, receiver) not in self._routes:
            if isinstance(self.machine, Topology):
                self._routes[sender, receiver] = self._over_levels(self.machine, sender, receiver)
            else:
                self._routes.update(_widest_paths(self.machine, sender))
        return self._routes[sender, receiver]

    def _over_levels(self, machine: Topology, sender: int, receiver: int) -> Route:
        """Over the outermost level that parts them: the faster ones within are not what it waits for."""
        number = next(number for number, size in enumerate(self._group) if sender // size != receiver // size)
        level = machine.levels[number]
        ports = machine.whole_count // level.shared_by
        first = self._first_port[number]
        way = (first + sender // level.shared_by, first + ports + receiver // level.shared_by)
        return Route(way, level.bandwidth_bytes_per_s, level.latency_seconds, level.name)

    @cached_property
    def received_bytes_per_s(self) -> tuple[float, ...]:
        """The bandwidth at which each device can receive, at most: over all levels of a tree, or all of its links, at
        the same time.
        """
        machine = self.machine
        if isinstance(machine, Topology):
            return (sum(level.bandwidth_bytes_per_s for level in machine.levels),) * machine.device_count
        return tuple(
            sum(link.bandwidth_bytes_per_s for link in machine.links if device in link.between)
            for device in range(machine.device_count)
        )

    @cached_property
    def seconds_per_byte(self) -> NDArray[np.float64]:
        """The time of a byte between two devices, [receiver, sender], when all that share a level use it."""
        count = self.machine.device_count
        if isinstance(self.machine, Topology):
            seconds = np.zeros((count, count))
            number = np.arange(count)
            # The innermost level first, so that the outermost that parts two devices has the last word.
            for level, size in reversed(list(zip(self.machine.levels, self._group, strict=True))):
                apart = number[:, None] // size != number[None, :] // size
                seconds[apart] = level.shared_by / level.bandwidth_bytes_per_s
            return seconds
        pairs = [
            [
                0.0 if sender == receiver else 1 / self.route(sender, receiver).bandwidth_bytes_per_s
                for sender in range(count)
            ]
            for receiver in range(count)
        ]
        return np.array(pairs)


def level_ways(machine: Machine) -> tuple[int, ...]:
    """Into how many groups each level of a machine divides, outermost first; together as many as it has devices.

    A device graph has the levels that its links show: the devices that reach each other over more than a bandwidth are
    a group. (Widest paths have no other groups than nested ones.) A bandwidth that leaves groups of unequal sizes makes
    no level; neither does a level of a tree that the used part of a machine fills unevenly.
    """
    if isinstance(machine, Topology):
        return _used_ways(machine)
    interconnect = Interconnect(machine)
    every = range(machine.device_count)
    width = [
        [float("inf") if device == peer else interconnect.route(device, peer).bandwidth_bytes_per_s for peer in every]
        for device in every
    ]
    ways, size = [], machine.device_count
    for narrow in sorted({wide for row in width for wide in row if wide < float("inf")}):
        sizes = {sum(wide > narrow for wide in row) for row in width}
        if len(sizes) == 1 and sizes != {size}:
            inner = sizes.pop()
            ways.append(size // inner)
            size = inner
    return tuple(ways)


def _used_ways(machine: Topology) -> tuple[int, ...]:
    """The ways of the levels between the devices of a tree that are used."""
    if machine.used is None:
        return tuple(level.ways for level in machine.levels)
    ways, remaining, below = [], machine.used, machine.whole_count
    for level in machine.levels:
        below //= level.ways
        if remaining > below and remaining % below == 0:
            ways.append(remaining // below)
            remaining = below
    return tuple(ways)


def part(machine: Machine, count: int) -> Machine:
    """So many devices of a machine, the nearest to each other.

    Of a tree of levels these are the first ones. Of a device graph, each device is tried with those that it reaches
    over the most bandwidth and then with the least latency; the set between whose devices a byte takes the least is
    taken. What is left of the graph passes bytes on, as its switches do.

    Args:
        machine: the whole one.
        count: at least 1, and no more than it has.
    """
    assert 1 <= count <= machine.device_count, "a part of the machine"
    if count == machine.device_count:
        return machine
    if isinstance(machine, Topology):
        name = f"{machine.name}, {count} of {machine.whole_count} devices"
        return replace(machine, name=name, used=count)
    chosen = _nearest(Interconnect(machine), count)
    relays = [device for device in range(machine.device_count) if device not in chosen]
    names = (*(f"device {device}" for device in relays), *machine.switches)
    number = {device: place for place, device in enumerate((*chosen, *relays))}

    def renumbered(link: DeviceLink) -> DeviceLink:
        first, second = (number.get(node, node) for node in link.between)  # switches keep their numbers
        return replace(link, between=(first, second))

    return DeviceGraph(
        name=f"{machine.name}, devices {', '.join(map(str, chosen))} of {machine.device_count}",
        devices=tuple(machine.devices[device] for device in chosen),
        links=tuple(map(renumbered, machine.links)),
        switches=names,
        source=machine.source,
    )


def whole_name(name: str) -> str:
    """The name of the machine of which :func:`part` has named a part; of a whole machine its own.

    Example:
        "dgx-h100, 4 of 8 devices" is a part of "dgx-h100".
    """
    return name.partition(", ")[0]


def _nearest(interconnect: Interconnect, count: int) -> tuple[int, ...]:
    """The devices of a graph that are nearest to each other, by their numbers."""
    every = range(interconnect.machine.device_count)

    def distance(device: int, peer: int) -> tuple[float, float, int]:
        if device == peer:
            return (-float("inf"), 0.0, peer)
        route = interconnect.route(device, peer)
        return (-route.bandwidth_bytes_per_s, route.latency_seconds, peer)

    def around(device: int) -> tuple[int, ...]:
        return tuple(sorted(sorted(every, key=lambda peer: distance(device, peer))[:count]))

    def seconds(chosen: tuple[int, ...]) -> float:
        return float(f"{interconnect.seconds_per_byte[np.ix_(chosen, chosen)].sum():.9e}")

    return min(sorted({around(device) for device in every}), key=seconds)


def _level_ports(machine: Topology) -> tuple[list[float], list[int], list[int]]:
    """Bandwidth of every port; by level, the number of its first port and the devices of a group below it."""
    bandwidths: list[float] = []
    first, group = [], []
    below = machine.whole_count
    for level in machine.levels:
        below //= level.ways
        first.append(len(bandwidths))
        group.append(below)
        bandwidths += [level.bandwidth_bytes_per_s] * (2 * (machine.whole_count // level.shared_by))
    return bandwidths, first, group


def _widest_paths(graph: DeviceGraph, sender: int) -> dict[tuple[int, int], Route]:
    """The routes from a device to all others."""
    leaving: dict[int, list[tuple[int, int]]] = {}
    for number, link in enumerate(graph.links):
        first, second = link.between
        leaving.setdefault(first, []).append((second, 2 * number))
        leaving.setdefault(second, []).append((first, 2 * number + 1))
    width = _widths(graph, leaving, sender)
    routes: dict[tuple[int, int], Route] = {}
    # A wide part of a way is no reason to take more links where a later one is narrow: each width is looked at alone.
    for wide in sorted(set(width.values())):
        for node, (latency, path) in _shortest(graph, leaving, sender, wide).items():
            if width.get(node) == wide and node < graph.device_count:
                routes[sender, node] = Route(path, wide, latency, to_text(wide, Quantity.BYTES_PER_S))
    return routes


def _widths(graph: DeviceGraph, leaving: dict[int, list[tuple[int, int]]], sender: int) -> dict[int, float]:
    """The bandwidth of the widest way to every other node: Dijkstra's algorithm, the widest first."""
    done: dict[int, float] = {}
    waiting = [(-float("inf"), sender)]
    while waiting:
        negated, node = heapq.heappop(waiting)
        if node not in done:
            done[node] = -negated
            for neighbour, port in leaving.get(node, ()):
                heapq.heappush(waiting, (max(negated, -graph.links[port // 2].bandwidth_bytes_per_s), neighbour))
    del done[sender]
    return done


def _shortest(
    graph: DeviceGraph, leaving: dict[int, list[tuple[int, int]]], sender: int, wide: float
) -> dict[int, tuple[float, tuple[int, ...]]]:
    """Latency and ports of the way with the fewest links, then the least latency, over links of this width at least.

    Equal ways are told apart by the order of the links in the file.
    """
    done: dict[int, tuple[float, tuple[int, ...]]] = {}
    waiting: list[tuple[int, float, tuple[int, ...], int]] = [(0, 0.0, (), sender)]
    while waiting:
        links, latency, path, node = heapq.heappop(waiting)
        if node in done:
            continue
        done[node] = (latency, path)
        for neighbour, port in leaving.get(node, ()):
            link = graph.links[port // 2]
            if neighbour not in done and link.bandwidth_bytes_per_s >= wide:
                heapq.heappush(waiting, (links + 1, latency + link.latency_seconds, (*path, port), neighbour))
    return done
