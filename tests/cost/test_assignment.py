"""Workers on devices: what moves much goes where links are fast."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fast_suite import examples
from planner.cost.seconds.assignment import assign, usual_devices
from planner.cost.seconds.depth import depths
from planner.machine.routes import Interconnect
from planner.machine.topology_file import Device, DeviceGraph, DeviceLink, Level, Topology, load_topology

DEVICE = Device(2**30)


def traffic(cuts: tuple[int, ...], bytes_at: tuple[int, ...]) -> np.ndarray:
    """As many bytes between two workers as the outermost cut that parts them has."""
    depth = depths(cuts)
    moved = np.zeros(depth.shape, dtype=np.int64)
    for cut, amount in enumerate(bytes_at):
        moved[depth == cut] = amount
    return moved


def test_as_they_are_numbered_where_that_is_best_or_equal() -> None:
    interconnect = Interconnect(load_topology("p2.8xlarge"))
    assert assign(interconnect, (2, 2, 2), traffic((2, 2, 2), (1, 10, 100))) == tuple(range(8))
    assert assign(interconnect, (2, 2, 2), np.ones((8, 8), dtype=np.int64)) == tuple(range(8))


def test_the_cut_over_which_little_moves_crosses_the_slow_link() -> None:
    machine = Topology("t", DEVICE, (Level("slow", 2, 1e9), Level("fast", 4, 100e9)))
    only_last = np.zeros((8, 8), dtype=np.int64)
    for worker in range(8):  # all but the last cut's pairs talk
        for other in range(8):
            if worker != other and worker % 2 == other % 2:
                only_last[worker, other] = 100
    found = assign(Interconnect(machine), (2, 2, 2), only_last)
    assert [device // 4 for device in found] == [0, 1] * 4, "the last cut is laid on the slow level"


def test_ways_that_are_ordered_otherwise_than_the_levels() -> None:
    machine = Topology("t", DEVICE, (Level("slow", 2, 1e9), Level("fast", 3, 100e9)))
    found = assign(Interconnect(machine), (3, 2), np.ones((6, 6), dtype=np.int64))
    assert sorted(found) == list(range(6))
    moved = traffic((3, 2), (100, 1))
    found = assign(Interconnect(machine), (3, 2), moved)
    assert [device // 3 for device in found] == [0, 1] * 3


def test_before_anything_is_known_outer_cuts_are_on_outer_levels() -> None:
    def usual(levels: tuple[int, ...], cuts: tuple[int, ...]) -> tuple[int, ...]:
        named = tuple(Level(str(number), ways, 10.0 ** (9 + number)) for number, ways in enumerate(levels))
        return usual_devices(Interconnect(Topology("t", DEVICE, named)), cuts)

    assert usual((2, 4), (2, 2, 2)) == tuple(range(8))
    assert usual((), ()) == (0,)
    assert usual((2, 2), (4,)) == (0, 1, 2, 3)
    assert [device // 3 for device in usual((2, 3), (3, 2))] == [0, 1] * 3, "the cut of 2 is on the level of 2"
    near = usual_devices(Interconnect(load_topology("icml18-p100")), (2,) * 4)
    assert {frozenset(near[first : first + 4]) for first in range(0, 16, 4)} == {
        frozenset(range(first, first + 4)) for first in range(0, 16, 4)
    }


def test_levels_that_no_cuts_fit_take_workers_as_they_are_numbered() -> None:
    machine = Topology("t", DEVICE, (Level("slow", 2, 1e9), Level("fast", 2, 100e9)))
    assert assign(Interconnect(machine), (4,), np.ones((4, 4), dtype=np.int64)) == (0, 1, 2, 3)


def test_a_worker_that_needs_much_gets_the_large_device() -> None:
    devices = (Device(10), Device(10), Device(50), Device(10))
    ring = tuple(DeviceLink((one, (one + 1) % 4), 1e9) for one in range(4))
    interconnect = Interconnect(DeviceGraph("g", devices, ring))
    found = assign(interconnect, (2, 2), np.ones((4, 4), dtype=np.int64), (40, 5, 5, 5))
    assert found[0] == 2


@examples(25)
@given(st.integers(0, 2**32 - 1))
def test_on_a_small_graph_little_is_lost_against_all_arrangements(seed: int) -> None:
    rng = np.random.default_rng(seed)
    links = tuple(
        DeviceLink(pair, float(rng.integers(1, 9)))
        for pair in itertools.combinations(range(4), 2)
        if pair[1] == pair[0] + 1 or rng.random() < 0.5
    )
    interconnect = Interconnect(DeviceGraph("g", (DEVICE,) * 4, links))
    moved = rng.integers(0, 100, (4, 4))
    np.fill_diagonal(moved, 0)

    def seconds(order: tuple[int, ...]) -> float:
        index = np.array(order)
        return float((moved * interconnect.seconds_per_byte[index[:, None], index[None, :]]).sum())

    found = assign(interconnect, (2, 2), moved)
    assert sorted(found) == [0, 1, 2, 3]
    least = min(seconds(order) for order in itertools.permutations(range(4)))
    assert seconds(found) <= 1.25 * least + 1e-9
    assert seconds(found) <= seconds((0, 1, 2, 3)) + 1e-9
