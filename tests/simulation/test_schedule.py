"""Simulated iterations, against the estimate where everybody is alike, and against a simulation by exact arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import pytest

from planner import opdefs
from planner.artifacts.program import Fetch, Program
from planner.artifacts.waits import data_waits, reuse_waits
from planner.cost.seconds.estimate import Timed, summed, timed
from planner.cost.seconds.simulated import Schedule, scheduled
from planner.features.zoo.models import mlp
from planner.graph.core.model import DType, Graph
from planner.machine.routes import Interconnect
from planner.machine.topology_file import Device, Level, Topology
from planner.partition.build import partition
from planner.search.decide import decide
from planner.search.request import SearchRequest
from planner.simulation.schedule import Task, simulate

FLAT = Topology("flat", Device(2**40, ((DType.FLOAT32, 1e12),), 100e9), (Level("link", 4, 10e9, 1e-6),))
TWO = Topology("two levels", FLAT.device, (Level("slow", 2, 1e9, 10e-6, shared_by=2), Level("fast", 2, 10e9, 1e-6)))


def made(graph: Graph, machine: Topology, strategy: str) -> tuple[Program, Timed, Schedule]:
    ops = opdefs.standard().bind_all(graph)
    plan = decide(graph, ops, SearchRequest(machine.device_count, strategy=strategy))
    program = partition(graph, ops, plan).program
    parts = timed(graph, ops, plan.strategies, plan.cuts, program, machine)
    return program, parts, scheduled(program, parts, summed(parts, ops, plan.strategies, program, None))


@dataclass(eq=False)
class Part:
    """What a fetch still has to take from one worker."""

    left: Fraction
    ports: tuple[int, ...]
    latency: Fraction


def exactly(program: Program, seconds: Mapping[Task, float], net: Interconnect, devices: tuple[int, ...]) -> Fraction:
    """When the last step ends, worker by worker and in fractions: all shares are worked out anew after every event."""
    waits = [
        [{**{w: max(one.get(w, 0), other.get(w, 0)) for w in {*one, *other}}} for one, other in zip(*both, strict=True)]
        for both in zip(data_waits(program.workers), reuse_waits(program.workers), strict=True)
    ]
    done = [0] * len(program.workers)
    until: dict[int, Fraction] = {}
    flows: dict[int, list[Part]] = {}
    arrived: dict[int, Fraction] = {}
    now, bandwidth = Fraction(0), [Fraction(speed) for speed in net.port_bytes_per_s]
    while any(count < len(worker.steps) for count, worker in zip(done, program.workers, strict=True)):
        moving = True
        while moving:
            moving = False
            for worker in program.workers:
                me = worker.worker
                if me in until or me in flows or done[me] == len(worker.steps):
                    continue
                if any(done[other] < count for other, count in waits[me][done[me]].items()):
                    continue
                step = worker.steps[done[me]]
                moving = True
                if not isinstance(step, Fetch):
                    until[me] = now + Fraction(seconds[me, done[me]])
                    continue
                taken = step.taken_bytes(worker.buffers[step.target].dtype.item_bytes)
                routes = [(net.route(devices[one], devices[me]), size) for one, size in taken.items() if one != me]
                arrived[me] = now
                flows[me] = [
                    Part(Fraction(size), route.ports, Fraction(route.latency_seconds)) for route, size in routes
                ]
                if not routes:
                    del flows[me]
                    until[me] = now
        use: dict[int, int] = {}
        for one in (flow for mine in flows.values() for flow in mine):
            for port in one.ports:
                use[port] = use.get(port, 0) + 1
        speeds = {id(one): min(bandwidth[port] / use[port] for port in one.ports)
                  for mine in flows.values() for one in mine}  # fmt: skip
        ends = [*until.values(), *(now + one.left / speeds[id(one)] for mine in flows.values() for one in mine)]
        later = min(ends)
        for me, mine in list(flows.items()):
            for one in list(mine):
                one.left -= (later - now) * speeds[id(one)]
                if not one.left:
                    mine.remove(one)
                    arrived[me] = max(arrived[me], later + one.latency)
            if not mine:
                del flows[me]
                until[me] = arrived[me]
        now = later
        for me, end in list(until.items()):
            if end == now:
                del until[me]
                done[me] += 1
    return now


@pytest.mark.parametrize("strategy", ["data", "tofu", "model", "fsdp"])
@pytest.mark.parametrize("machine", [FLAT, TWO])
def test_a_simulation_is_what_exact_arithmetic_gives(strategy: str, machine: Topology) -> None:
    program, parts, _ = made(mlp(2, 24, 36), machine, strategy)
    # As if the workers were not alike, so that they wait for each other at other times.
    uneven = {task: seconds * (1 + task[0]) for task, seconds in parts.segment_seconds.items()}
    for times in (parts.segment_seconds, uneven):
        found = simulate(program, times, parts.interconnect, parts.devices)
        assert found.seconds == pytest.approx(float(exactly(program, times, parts.interconnect, parts.devices)))
        path = [found.steps[worker][number] for worker, number in found.path()]
        assert path[0].start_seconds == 0
        assert sum(one.end_seconds - one.start_seconds for one in path) == pytest.approx(found.seconds)
        assert sum(one.moved_bytes for one in found.transfers) == program.predicted_bytes
        side = simulate(program, times, parts.interconnect, parts.devices, "side by side")
        assert sum(one.moved_bytes for one in side.transfers) == program.predicted_bytes


def test_where_workers_are_alike_the_estimate_is_the_closed_form() -> None:
    for graph, strategy in ((mlp(3, 64, 128), "data"), (mlp(3, 64, 128), "fsdp"), (mlp(2, 128, 32), "model")):
        _, _, schedule = made(graph, FLAT, strategy)
        assert schedule.simulation.seconds == pytest.approx(schedule.estimate.estimated_seconds, rel=0.02), strategy
        assert schedule.differing() == ()
        assert sum(one.simulated_seconds for one in schedule.sums()) == pytest.approx(schedule.simulation.seconds)


def test_where_a_worker_is_slow_it_is_told_which_ops_nobody_waits_for() -> None:
    program, parts, _ = made(mlp(3, 64, 128), FLAT, "data")
    # Each op takes long on one worker, in turn on another one. The estimate waits for all of them.
    slow = {name: seconds.copy() for name, seconds in parts.op_seconds.items()}
    for number, seconds in enumerate(slow.values()):
        seconds[number % 4] *= 1000
    uneven = {
        (worker.worker, number): sum(float(slow[op][worker.worker]) for op in step.ops)
        for worker in program.workers
        for number, step in enumerate(worker.steps)
        if not isinstance(step, Fetch)
    }
    parts = replace(parts, op_seconds=slow, segment_seconds=uneven)
    longest = float(sum(seconds.max() for seconds in slow.values()))
    estimate = replace(made(mlp(3, 64, 128), FLAT, "data")[2].estimate, compute_seconds=longest)
    schedule = scheduled(program, parts, estimate)
    assert schedule.simulation.seconds < 0.9 * estimate.estimated_seconds
    hidden = [one for one in schedule.differing() if one.simulated_seconds < one.estimated_seconds]
    assert hidden
    assert all(one.kind == "compute" for one in hidden)
    taken = sum(one.simulated_seconds - one.estimated_seconds for one in hidden)
    assert taken < -0.1 * estimate.estimated_seconds
    each = schedule.workers()
    assert [one.compute_seconds + one.fetch_seconds + one.wait_seconds for one in each] == pytest.approx(
        [schedule.simulation.seconds] * 4
    )
