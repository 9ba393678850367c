"""Estimated time of an iteration of a plan on a machine (ICML'18, section 5.1).

Equation 1 there adds up what every layer computes, transfers and synchronises. Here the sum is over ops and exchanges:
an op takes what its slowest worker takes, by a profile or by the roofline, an exchange what its busiest link takes.
Bytes are those of the program's fetches, pair by pair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.algebra.lane import Lane, has_owners
from planner.artifacts.estimate import ComputeSources, LevelTraffic, TimeEstimate
from planner.artifacts.plan import OpStrategy
from planner.artifacts.program import Program, Segment
from planner.cost.roofline import Roofline
from planner.cost.seconds.assignment import assign, bytes_between
from planner.cost.seconds.exchange import Exchange, ExchangeTime, ExchangeTimes, exchanges
from planner.cost.seconds.measured import From, Measured, compute_times
from planner.cost.seconds.pipelined import Pipeline
from planner.graph.core.model import Graph, lanes_of_tensors
from planner.graph.step.deliveries import is_delivery
from planner.machine.device_profile import DeviceProfile
from planner.machine.routes import Interconnect
from planner.machine.topology_file import Machine
from planner.simulation.schedule import Task, simulate
from planner.spent import part
from planner.tdl.bind import BoundOp


@dataclass(frozen=True, slots=True)
class Timed:
    """The terms of an estimate: what each op takes on each worker, and what each exchange takes."""

    interconnect: Interconnect
    devices: tuple[int, ...]
    """The device of each worker."""
    computing: Roofline | Measured
    """By which ops are timed."""
    op_seconds: Mapping[str, np.ndarray]
    """By op, of each worker."""
    segment_seconds: Mapping[Task, float]
    """What each segment of the program computes; ops in steps fall into several segments."""
    exchanges: tuple[tuple[Exchange, ExchangeTime], ...]
    """In the order in which they first occur."""
    update: frozenset[str]
    """The tensors whose exchange is synchronisation (``synchronised``)."""


def timed(
    graph: Graph,
    ops: Sequence[BoundOp],
    strategies: Mapping[str, OpStrategy],
    cuts: tuple[int, ...],
    program: Program,
    machine: Machine,
    profile: DeviceProfile | None = None,
) -> Timed:
    """Times ops and exchanges one by one; arguments as for ``estimate``.

    Raises:
        UsageError: the profile is not of these devices, or lacks what the topology does not say either.
    """
    interconnect = Interconnect(machine)
    devices = assign(interconnect, cuts, bytes_between(program), program.peak_bytes)
    held = machine.devices
    computing = compute_times([held[device] for device in devices], profile)
    by_op = {}
    for bound in ops:
        strategy = strategies[bound.op.name]
        chunks = 1 if strategy.steps is None else strategy.steps.count
        by_op[bound.op.name] = chunks * computing.seconds(bound, strategy.tiling, chunks)
    times = ExchangeTimes(interconnect, devices)
    tensors = lanes_of_tensors(graph)
    deliveries = {f"{name}@{op.name}.{slot}" for op in graph.ops if op.name in graph.lanes
                  for slot, name in enumerate(op.inputs)}  # fmt: skip
    exchange_times = []
    for exchange in exchanges(program):
        time = times.of(exchange.moved)
        if exchange.tensor in tensors or exchange.name in deliveries:
            time = time.scaled(exchange.share_of(len(program.workers)))
        exchange_times.append((exchange, time))
    segments = _segment_seconds(program, by_op, strategies)
    return Timed(interconnect, devices, computing, by_op, segments, tuple(exchange_times), synchronised(graph, ops))


@part("estimates")
def estimate(
    graph: Graph,
    ops: Sequence[BoundOp],
    strategies: Mapping[str, OpStrategy],
    cuts: tuple[int, ...],
    program: Program,
    machine: Machine,
    profile: DeviceProfile | None = None,
) -> TimeEstimate:
    """Estimates an iteration.

    Args:
        graph: that was planned.
        ops: of the graph.
        strategies: of the plan, by op.
        cuts: of the plan.
        program: of the plan.
        machine: with as many devices as the program has workers.
        profile: what ops were measured to take; None: they take their rooflines.

    Raises:
        UsageError: the profile is not of these devices, or lacks what the topology does not say either.
    """
    parts = timed(graph, ops, strategies, cuts, program, machine, profile)
    return summed(parts, ops, strategies, program, profile)


def summed(
    parts: Timed,
    ops: Sequence[BoundOp],
    strategies: Mapping[str, OpStrategy],
    program: Program,
    profile: DeviceProfile | None,
) -> TimeEstimate:
    """The estimate that these parts add up to; the other arguments are those that the parts were timed with."""
    devices, by_op, computing = parts.devices, parts.op_seconds, parts.computing
    machine = parts.interconnect.machine
    transfer = synchronisation = 0.0
    level_bytes: dict[str, int] = {}
    level_seconds: dict[str, float] = {}
    fetching = np.zeros(len(devices))
    by_name: dict[str, ExchangeTime] = {}
    updating: set[str] = set()
    for exchange, time in parts.exchanges:
        by_name[exchange.name.rstrip("'")] = time
        if exchange.tensor in parts.update:
            updating.add(exchange.name.rstrip("'"))
            synchronisation += time.seconds
        else:
            transfer += time.seconds
        for level, amount in time.level_bytes.items():
            level_bytes[level] = level_bytes.get(level, 0) + amount
            level_seconds[level] = level_seconds.get(level, 0.0) + time.level_seconds[level]
        fetching[list(exchange.receivers)] += time.seconds
    for bound in (bound for bound in ops if strategies[bound.op.name].steps is not None):
        pipeline = Pipeline.of(bound.op, strategies[bound.op.name])
        exchange_seconds = sum(by_name[name].seconds for name in pipeline.names if name in by_name)
        hidden = pipeline.hidden_seconds(by_name, float(by_op[bound.op.name].max()))
        late = sum(by_name[name].seconds for name in pipeline.names if name in updating)
        synchronisation -= hidden * late / exchange_seconds if exchange_seconds else 0.0
        transfer -= hidden * (1 - late / exchange_seconds) if exchange_seconds else 0.0
    compute = float(sum(float(seconds.max()) for seconds in _at_once(by_op, ops, strategies)))
    serial = compute + transfer + synchronisation
    side_by_side = simulate(program, parts.segment_seconds, parts.interconnect, devices, "side by side")
    return TimeEstimate(
        topology=machine.name,
        devices=devices,
        compute_seconds=compute,
        transfer_seconds=transfer,
        synchronisation_seconds=synchronisation,
        # Whoever can overlap can also do one thing after the other.
        overlapped_seconds=min(serial, side_by_side.seconds),
        levels=tuple(
            LevelTraffic(level, level_bytes[level], level_seconds[level]) for level in _slowest_first(level_seconds)
        ),
        worker_compute_seconds=tuple(float(seconds) for seconds in sum(by_op.values(), start=np.zeros(len(devices)))),
        worker_fetch_seconds=tuple(float(seconds) for seconds in fetching),
        assumptions=computing.assumptions,
        sources=None if profile is None else _sources(profile, computing, ops, strategies),
    )


def _at_once(
    by_op: Mapping[str, np.ndarray], ops: Sequence[BoundOp], strategies: Mapping[str, OpStrategy]
) -> Iterable[np.ndarray]:
    """Seconds of each worker, for what workers do at the same time: an op, or those of all lanes that have owners."""
    by_kind: dict[object, np.ndarray] = {}
    for bound in ops:
        name, lane, tiling = bound.op.name, bound.lane, strategies[bound.op.name].tiling
        key: object = name
        if lane is not None and has_owners(tiling):
            # A lane's ops are as many as another's of each kind.
            key = bound.op.op_type, bound.content, Lane(0, lane.count).owned(tiling)
        by_kind[key] = by_kind[key] + by_op[name] if key in by_kind else by_op[name]
    return by_kind.values()


def _sources(
    profile: DeviceProfile,
    computing: Roofline | Measured,
    ops: Sequence[BoundOp],
    strategies: Mapping[str, OpStrategy],
) -> ComputeSources:
    assert isinstance(computing, Measured), "there is a profile"
    count = dict.fromkeys(From, 0)
    seconds = dict.fromkeys(From, 0.0)
    for bound in (bound for bound in ops if not is_delivery(bound.op)):
        worker_seconds, source = computing.seconds_and_source(bound, strategies[bound.op.name].tiling)
        count[source] += 1
        seconds[source] += float(worker_seconds.max())
    device = profile.device
    threads = f", {device.threads} threads" if device.threads > 1 else ""
    return ComputeSources(
        device=f"{device.name}{threads}, {device.runtime}",
        measured_ops=count[From.MEASURED],
        scaled_ops=count[From.SCALED],
        roofline_ops=count[From.ROOFLINE],
        measured_seconds=seconds[From.MEASURED],
        scaled_seconds=seconds[From.SCALED],
        roofline_seconds=seconds[From.ROOFLINE],
        roofline_factor=computing.roofline_factor,
    )


def _slowest_first(level_seconds: Mapping[str, float]) -> list[str]:
    return sorted(level_seconds, key=lambda level: (-level_seconds[level], level))


def _segment_seconds(
    program: Program, by_op: Mapping[str, np.ndarray], strategies: Mapping[str, OpStrategy]
) -> dict[Task, float]:
    stepped = frozenset(name for name, strategy in strategies.items() if strategy.steps is not None)
    by_task = {}
    for worker in program.workers:
        segments = [(number, step) for number, step in enumerate(worker.steps) if isinstance(step, Segment)]
        count = Counter(op for _, step in segments for op in step.ops if op in stepped)
        for number, step in segments:
            by_task[worker.worker, number] = sum(float(by_op[op][worker.worker]) / count.get(op, 1) for op in step.ops)
    return by_task


def synchronised(graph: Graph, ops: Sequence[BoundOp]) -> frozenset[str]:
    """The tensors whose exchange is synchronisation: states, next states, and gradients on the way to them.

    From a next state back through all that only computes element by element or moves; what an op with a reduction
    makes there is the gradient, and before it is no synchronisation. Scalars (a learning rate, a norm) are none either.
    """
    bound_of = {name: bound for bound in ops for name in bound.op.outputs if name}
    names = {pair.current for pair in graph.state}
    waiting = [pair.following for pair in graph.state]
    while waiting:
        name = waiting.pop()
        if name in names or name not in bound_of or graph.tensors[name].elements == 1:
            continue
        names.add(name)
        analysis = bound_of[name].analysis
        if not analysis.reduction_variables and not analysis.is_opaque:
            waiting.extend(filter(None, bound_of[name].op.inputs))
    return frozenset(names)
