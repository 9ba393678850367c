"""The assignment of workers to devices.

The plan's cuts are laid on the machine from the outside in (SoyBean, section 5.1): the cuts over which little moves go
where links are slow. What moves between each two workers is known from the plan's program, so the choice is by what
it costs: bytes times seconds per byte, summed over all pairs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from planner.algebra.tiling import coordinates
from planner.artifacts.program import Fetch, Program
from planner.machine.kinds import has_several_speeds, is_laid_by_kinds, laid_on_kinds
from planner.machine.routes import Interconnect, level_ways
from planner.machine.topology_file import Machine, Topology

_MOST_ORDERS = 720
"""Orders of cuts that are tried on a device graph: all of up to six cuts."""


def bytes_between(program: Program) -> NDArray[np.int64]:
    """The bytes that each worker takes from each other in an iteration, [receiver, sender]."""
    moved_bytes = np.zeros((len(program.workers), len(program.workers)), dtype=np.int64)
    for worker in program.workers:
        for step in worker.steps:
            if isinstance(step, Fetch):
                for sender, amount in step.taken_bytes(worker.buffers[step.target].dtype.item_bytes).items():
                    moved_bytes[worker.worker, sender] += amount
    np.fill_diagonal(moved_bytes, 0)
    return moved_bytes


def assign(
    interconnect: Interconnect,
    cuts: tuple[int, ...],
    moved: NDArray[np.int64],
    needed_bytes: Sequence[int] = (),
) -> tuple[int, ...]:
    """The device of each worker.

    Args:
        interconnect: of the machine; it has as many devices as there are workers.
        cuts: of the plan, outermost first.
        moved: bytes between workers, as ``bytes_between`` tells them.
        needed_bytes: memory that each worker needs; () if all devices have enough.

    Returns:
        Of the arrangements that were tried, the one in which the most memory fits, and of these the one with the
        least bytes times seconds per byte.
    """
    machine = interconnect.machine
    assert prod(cuts) == machine.device_count == len(moved), "a worker for each device"
    if isinstance(machine, Topology):
        # Devices are equal, and worth of an arrangement is told by the level of each pair.
        tried: Iterable[tuple[int, ...]] = _on_levels(machine, cuts)
    else:
        usual = usual_devices(interconnect, cuts)
        tried = itertools.chain([usual], _on_a_graph(interconnect, cuts, moved), [_by_memory(machine, needed_bytes)])
        if has_several_speeds(machine):  # parts are in proportion to what each worker's device is worth
            kinds = [machine.devices[device] for device in usual]
            tried = (order for order in tried if [machine.devices[device] for device in order] == kinds)
    return min(tried, key=lambda order: (_lacking(machine, order, needed_bytes), _seconds(interconnect, order, moved)))


def _seconds(interconnect: Interconnect, devices: Sequence[int], moved: NDArray[np.int64]) -> float:
    order = np.array(devices)
    # Sums in another order differ in the last bits: what is equal must compare as equal.
    return float(f"{(moved * interconnect.seconds_per_byte[order[:, None], order[None, :]]).sum():.9e}")


def _lacking(machine: Machine, devices: Sequence[int], needed_bytes: Sequence[int]) -> int:
    """Bytes that workers need and their devices do not have."""
    held = machine.devices
    return sum(
        max(0, needed - held[device].memory_bytes) for needed, device in zip(needed_bytes, devices, strict=False)
    )


def _on_levels(machine: Topology, cuts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Workers as they are numbered, then every other way to lay whole cuts on levels."""
    yield tuple(range(machine.device_count))
    ways = level_ways(machine)
    for chosen in sorted(set(_laid(cuts, ways))):
        yield _numbered(cuts, sorted(range(len(cuts)), key=lambda cut: (chosen[cut], cut)))


def _laid(cuts: tuple[int, ...], ways: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The level of each cut, so that the cuts of a level multiply to its ways; all choices."""
    if not cuts:
        if all(count == 1 for count in ways):
            yield ()
        return
    for level, count in enumerate(ways):
        if count % cuts[0] == 0:
            remaining_ways = [count // cuts[0] if number == level else size for number, size in enumerate(ways)]
            for inner in _laid(cuts[1:], remaining_ways):
                yield (level, *inner)


def _numbered(cuts: tuple[int, ...], order: Sequence[int]) -> tuple[int, ...]:
    """The number of each worker when its cuts are counted in another order, outermost first."""
    numbers = np.zeros(prod(cuts), dtype=np.int64)
    groups = coordinates(cuts)
    for cut in order:
        numbers = numbers * cuts[cut] + groups[:, cut]
    return tuple(int(number) for number in numbers)


def usual_devices(interconnect: Interconnect, cuts: tuple[int, ...]) -> tuple[int, ...]:
    """The device of each worker before anything is known of what moves: outer cuts over slow links."""
    machine = interconnect.machine
    if is_laid_by_kinds(machine):
        return laid_on_kinds(machine).devices
    if not isinstance(machine, Topology):
        return _by_nearness(interconnect.seconds_per_byte)
    laid = min(_laid(cuts, level_ways(machine)), default=None)
    if laid is None:
        return tuple(range(machine.device_count))  # no whole cuts fill the levels
    return _numbered(cuts, sorted(range(len(cuts)), key=lambda cut: (laid[cut], cut)))


def _by_memory(machine: Machine, needed_bytes: Sequence[int]) -> tuple[int, ...]:
    """The worker that needs the most memory on the device that has the most, and so on."""
    held = machine.devices
    devices = sorted(range(len(held)), key=lambda device: (-held[device].memory_bytes, device))
    needed = dict(enumerate(needed_bytes))
    workers = sorted(range(len(held)), key=lambda worker: (-needed.get(worker, 0), worker))
    return tuple(device for _, device in sorted(zip(workers, devices, strict=True)))


def _on_a_graph(
    interconnect: Interconnect, cuts: tuple[int, ...], moved: NDArray[np.int64]
) -> Iterator[tuple[int, ...]]:
    """Orders of cuts on devices by id and on devices sorted by nearness, the best of them improved by exchanges."""
    count = interconnect.machine.device_count
    starts = [tuple(range(count)), usual_devices(interconnect, cuts)]
    best: tuple[float, tuple[int, ...]] | None = None
    for order in itertools.islice(itertools.permutations(range(len(cuts))), _MOST_ORDERS):
        numbers = _numbered(cuts, order)
        for devices in starts:
            arrangement = tuple(devices[number] for number in numbers)
            yield arrangement
            seconds = _seconds(interconnect, arrangement, moved)
            if best is None or seconds < best[0]:
                best = (seconds, arrangement)
    assert best is not None, "there is one order at least"
    yield _exchanged(interconnect.seconds_per_byte, best[1], moved)


def _by_nearness(seconds_per_byte: NDArray[np.float64]) -> tuple[int, ...]:
    """Devices such that near ones are neighbours: the nearest two groups are joined until one is left."""
    between = seconds_per_byte + seconds_per_byte.T
    groups: list[list[int]] = [[device] for device in range(len(between))]
    while len(groups) > 1:
        pairs = itertools.combinations(range(len(groups)), 2)
        # Groups of equal distance: the smallest first, so that groups grow alike.
        first, second = min(
            pairs,
            key=lambda pair: (
                float(between[np.ix_(groups[pair[0]], groups[pair[1]])].mean()),
                len(groups[pair[0]]) + len(groups[pair[1]]),
                pair,
            ),
        )
        groups[first] += groups.pop(second)
    return tuple(groups[0])


def _exchanged(
    seconds_per_byte: NDArray[np.float64], devices: Sequence[int], moved: NDArray[np.int64]
) -> tuple[int, ...]:
    """Exchanges the devices of two workers as long as that makes the sum less."""
    order = np.array(devices)

    def seconds() -> float:
        return float((moved * seconds_per_byte[order[:, None], order[None, :]]).sum())

    least = seconds()
    improving = True
    while improving:
        improving = False
        for first, second in itertools.combinations(range(len(order)), 2):
            order[[first, second]] = order[[second, first]]
            total_seconds = seconds()
            if total_seconds < least * (1 - 1e-12):
                least, improving = total_seconds, True
            else:
                order[[first, second]] = order[[second, first]]
    return tuple(int(device) for device in order)
