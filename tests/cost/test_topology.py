"""Routes: which, how wide, and what they share; against machines that can be worked out by hand."""

from __future__ import annotations

import itertools
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.seconds.assignment import usual_devices
from planner.cost.seconds.depth import depths
from planner.machine.routes import Interconnect, level_ways, part
from planner.machine.topology_file import Device, DeviceGraph, DeviceLink, Level, Machine, Topology, load_topology

DEVICE = Device(2**30)


def test_two_devices_meet_at_the_outermost_level_that_parts_them() -> None:
    levels = (Level("network", 2, 1e9, 20e-6), Level("socket", 2, 10e9, 5e-6), Level("pcie", 3, 20e9))
    interconnect = Interconnect(Topology("t", DEVICE, levels))
    assert [interconnect.route(other, 0).level for other in range(1, 12)] == ["pcie"] * 2 + ["socket"] * 3 + [
        "network"
    ] * 6
    assert interconnect.route(11, 0).latency_seconds == 20e-6
    assert interconnect.route(5, 0).bandwidth_bytes_per_s == 10e9
    assert interconnect.seconds_per_byte[0, 11] == 1e-9
    assert interconnect.seconds_per_byte[4, 4] == 0


def test_devices_that_share_an_adapter_queue_at_one_port() -> None:
    levels = (Level("network", 2, 1e9, shared_by=2), Level("nvlink", 2, 20e9))
    interconnect = Interconnect(Topology("t", DEVICE, levels))
    first, second = interconnect.route(0, 2), interconnect.route(1, 3)
    assert first.ports == second.ports
    assert set(first.ports).isdisjoint(interconnect.route(2, 0).ports), "both directions have all of the bandwidth"
    assert set(interconnect.route(0, 1).ports).isdisjoint(interconnect.route(2, 3).ports)
    assert interconnect.seconds_per_byte[0, 2] == 2e-9, "under load each has a half"


def test_a_pair_without_a_link_takes_the_widest_way_then_the_shortest() -> None:
    links = (
        DeviceLink((0, 1), 20e9, 1e-6),
        DeviceLink((1, 2), 10e9, 1e-6),
        DeviceLink((0, 2), 5e9, 1e-6),  # direct, and narrower
        DeviceLink((0, 3), 40e9, 1e-6),
        DeviceLink((3, 1), 40e9, 1e-6),  # wider from 0 to 1, and no use on the way to 2
    )
    interconnect = Interconnect(DeviceGraph("g", (DEVICE,) * 4, links))
    assert interconnect.route(0, 1).ports == (6, 8)
    assert interconnect.route(0, 2).ports == (0, 2)
    assert interconnect.route(2, 0).ports == (3, 1), "the same links in the other direction"
    assert interconnect.route(0, 2).bandwidth_bytes_per_s == 10e9
    assert interconnect.route(0, 2).latency_seconds == 2e-6


def test_the_icml18_cluster() -> None:
    interconnect = Interconnect(load_topology("icml18-p100"))
    assert interconnect.route(4, 7).level == "20GB/s"
    assert interconnect.route(3, 4).level == "12.5GB/s"
    one, other = interconnect.route(0, 4), interconnect.route(1, 9)
    assert len(set(one.ports) & set(other.ports)) == 1, "the adapter of node 0"


@st.composite
def graphs(draw: st.DrawFn) -> DeviceGraph:
    count = draw(st.integers(2, 6))
    pairs = list(itertools.combinations(range(count), 2))
    tree = {(draw(st.integers(0, node - 1)), node) for node in range(1, count)}
    chosen = sorted(tree | draw(st.sets(st.sampled_from(pairs))))
    return DeviceGraph(
        "g",
        (DEVICE,) * count,
        tuple(DeviceLink(pair, float(draw(st.integers(1, 4))), float(draw(st.integers(0, 2)))) for pair in chosen),
    )


@given(graphs())
def test_routes_are_what_all_paths_give(graph: DeviceGraph) -> None:
    interconnect = Interconnect(graph)
    by_pair = {frozenset(link.between): link for link in graph.links}
    assert graph.device_count > 1
    for sender, receiver in itertools.permutations(range(graph.device_count), 2):
        best = None
        others = [node for node in range(graph.device_count) if node not in (sender, receiver)]
        for length in range(len(others) + 1):
            for middle in itertools.permutations(others, length):
                path = [sender, *middle, receiver]
                links = [by_pair.get(frozenset(pair)) for pair in itertools.pairwise(path)]
                if None not in links:
                    rank = (
                        -min(link.bandwidth_bytes_per_s for link in links),
                        len(links),
                        sum(link.latency_seconds for link in links),
                    )
                    best = rank if best is None else min(best, rank)
        route = interconnect.route(sender, receiver)
        assert (-route.bandwidth_bytes_per_s, len(route.ports), route.latency_seconds) == best
        for port, here in zip(route.ports, _nodes(graph, route.ports, sender), strict=True):
            link = graph.links[port // 2]
            assert link.between[port % 2] == here


def _nodes(graph: DeviceGraph, ports: tuple[int, ...], sender: int) -> list[int]:
    nodes = [sender]
    for port in ports:
        nodes.append(sum(graph.links[port // 2].between) - nodes[-1])
    return nodes[:-1]


def test_levels_of_a_tree_are_those_of_the_file() -> None:
    levels = (Level("network", 4, 1e9), Level("nvlink", 18, 50e9))
    assert level_ways(Topology("t", DEVICE, levels)) == (4, 18)
    assert level_ways(Topology("one", DEVICE, ())) == ()


def test_a_part_of_a_tree_is_its_first_devices() -> None:
    """With the adapters of the whole machine: four neighbours share one."""
    machine = load_topology("p2.8xlarge")
    assert part(machine, 8) is machine
    ways = {count: level_ways(part(machine, count)) for count in range(1, 9)}
    assert ways == {1: (), 2: (2,), 3: (3,), 4: (4,), 5: (5,), 6: (6,), 7: (7,), 8: (2, 4)}
    six = part(machine, 6)
    assert (six.device_count, len(six.devices), six.name) == (6, 6, "p2.8xlarge, 6 of 8 devices")
    whole = Interconnect(machine)
    for one, other in itertools.permutations(range(6), 2):
        assert Interconnect(six).route(one, other) == whole.route(one, other)
    two_nodes = part(load_topology("h100-64x8"), 16)
    assert level_ways(two_nodes) == (2, 8)
    assert {Interconnect(two_nodes).route(0, other).level for other in range(1, 16)} == {"infiniband", "nvlink"}


def test_a_part_of_a_graph_is_of_devices_that_are_near() -> None:
    links = (
        DeviceLink((0, 1), 1e9),
        DeviceLink((1, 4), 50e9),  # over the switch: 1 and 3 are near
        DeviceLink((3, 4), 50e9),
        DeviceLink((0, 2), 5e9),
    )
    graph = DeviceGraph("g", (DEVICE,) * 4, links, ("host",))
    two = part(graph, 2)
    assert isinstance(two, DeviceGraph)
    assert (two.name, two.device_count) == ("g, devices 1, 3 of 4", 2)
    assert two.switches == ("device 0", "device 2", "host")
    assert Interconnect(two).route(0, 1).bandwidth_bytes_per_s == 50e9
    assert len({device // 4 for device in _chosen(part(load_topology("icml18-p100"), 4))}) == 1, "one node"


def _chosen(machine: Machine) -> list[int]:
    return [int(number) for number in machine.name.partition("devices ")[2].partition(" of")[0].split(", ")]


@given(graphs(), st.data())
def test_what_is_left_of_a_graph_passes_bytes_on(graph: DeviceGraph, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, graph.device_count - 1))
    machine = part(graph, count)
    chosen, whole, some = _chosen(machine), Interconnect(graph), Interconnect(machine)
    assert len(set(chosen)) == count == machine.device_count
    for one, other in itertools.permutations(range(count), 2):
        wanted = whole.route(chosen[one], chosen[other])
        assert some.route(one, other).bandwidth_bytes_per_s == wanted.bandwidth_bytes_per_s


def test_levels_of_a_graph_are_what_its_links_show() -> None:
    def graph(count: int, *links: tuple[int, int, float]) -> DeviceGraph:
        return DeviceGraph("g", (DEVICE,) * count, tuple(DeviceLink((one, other), wide) for one, other, wide in links))

    assert level_ways(load_topology("icml18-p100")) == (4, 4)
    two_nodes_of_three = [(0, 2, 9.0), (2, 4, 8.0), (1, 3, 8.0), (3, 5, 9.0), (4, 5, 1.0)]
    assert level_ways(graph(6, *two_nodes_of_three)) == (2, 3), "9 leaves groups of two and of one"
    nested = [(0, 1, 9.0), (2, 3, 9.0), (4, 5, 9.0), (6, 7, 9.0), (0, 2, 5.0), (4, 6, 5.0), (0, 4, 1.0)]
    assert level_ways(graph(8, *nested)) == (2, 2, 2)
    assert level_ways(graph(4, (0, 1, 3.0), (1, 2, 2.0), (2, 3, 1.0))) == (4,), "no two groups are alike"
    assert level_ways(graph(3, (0, 1, 1.0), (1, 2, 1.0))) == (3,)
    assert level_ways(graph(1)) == ()


@given(graphs())
def test_a_group_of_a_level_is_nearer_to_itself_than_to_others(graph: DeviceGraph) -> None:
    ways = level_ways(graph)
    interconnect = Interconnect(graph)
    order = usual_devices(interconnect, ways)
    depth = depths(ways)
    wide = [[interconnect.route(one, other).bandwidth_bytes_per_s for other in order if other != one] for one in order]
    assert prod(ways) == graph.device_count
    for worker in range(graph.device_count):
        parted = [int(depth[worker, other]) for other in range(graph.device_count) if other != worker]
        for cut in range(1, len(ways)):
            inside = [width for width, at in zip(wide[worker], parted, strict=True) if at >= cut]
            outside = [width for width, at in zip(wide[worker], parted, strict=True) if at < cut]
            assert min(inside) > max(outside)


def test_nothing_is_sent_to_oneself() -> None:
    with pytest.raises(AssertionError):
        Interconnect(Topology("t", DEVICE, (Level("l", 2, 1e9),))).route(1, 1)
