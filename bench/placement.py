"""Operator placement: every op whole on one worker, the baseline of Tofu, section 7.1.

The layers of a recurrent network are on the workers in turn, as in Tofu's testbed. Of any other network the ops of the
forward pass are divided into runs of equal weight, one for each worker; the weight of an op is the bytes of what it
makes and of the state that it reads first, so that memory is spread. All other ops go to where their state is, else to
where the largest activation that they read was made, else to where their largest input was. Each transfer is counted
and carried out as in any other plan.

A plan's worker runs its ops in few segments, and another waits for the whole of one: ``pipelined_seconds`` estimates
what a runtime takes that runs each op as soon as its inputs are there, as MXNet does, so that layers on different
workers work as a pipeline over the steps of time.
"""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import prod
from pathlib import Path

from planner.algebra.tiling import UNCUT, Only, Tiling
from planner.artifacts.place import PLAN
from planner.artifacts.plan import digest
from planner.artifacts.plan_folder import write_folder
from planner.cost.roofline import Roofline
from planner.cost.tables import CostTables
from planner.descriptions import in_force
from planner.graph.core.model import Graph, Op, Role
from planner.graph.decompositions.randomness import lower_randomness
from planner.graph.files.to_onnx import to_model
from planner.machine.routes import Interconnect
from planner.machine.topology_file import Machine
from planner.partition.build import complete_plan, partition, plan_files, told_by_program, worker_files
from planner.planning.bodies import decide_with_bodies
from planner.progress import silent
from planner.search.request import SearchRequest
from planner.tdl.bind import BoundOp
from planner.training.doors.read import read_step

_LAYER = re.compile(r"layer(\d+)\.")


def placed(train: Path, workers: int, folder: Path) -> Path:
    """The plan of operator placement for a training graph, in a folder of its own."""
    directory = folder / f"{train.stem}.placed{workers}"
    if (directory / PLAN).exists():
        return directory
    descriptions, _ = in_force(None, "refuse")
    graph = lower_randomness(read_step(train, dims={}, state_pairs=None, operators=descriptions))
    content = to_model(graph).SerializeToString(deterministic=True)
    decided = decide_with_bodies(graph, descriptions, SearchRequest(1))
    owner = owners(decided.graph, workers)
    tilings = {name: _only(owner[name], workers) for name in decided.tilings}
    strategies = {
        op.name: replace(decided.strategies[op.name], tiling=_only(owner[op.name], workers)) for op in decided.graph.ops
    }
    plan = replace(decided, cuts=(workers,), strategy="placement").with_tilings(tilings, strategies, CostTables())
    partitioned = partition(decided.graph, decided.ops, plan)
    complete = complete_plan(plan, graph.name, digest(content), **told_by_program(partitioned.program))
    text = complete.to_json().encode()
    models = worker_files(graph.opset, digest(text), partitioned, silent)
    write_folder(directory, chain(plan_files(content, text), models), partitioned.program)
    return directory


def _only(worker: int, workers: int) -> Tiling:
    return Tiling((Only(worker),), (workers,))


def owners(graph: Graph, workers: int) -> dict[str, int]:
    """The worker of every op and of every tensor that is no constant, by name."""
    following = {pair.following: pair.current for pair in graph.state}
    results = [name for name in graph.outputs if graph.roles[name] is Role.RESULT]
    forward = _ancestors(graph, results)
    of_op: dict[str, int] = {}
    of_tensor: dict[str, int] = {}
    for name, worker in _forward_owners(graph, forward, workers).items():
        of_op[name] = worker
    for op in graph.ops:
        if op.name in of_op:
            for name in filter(None, op.inputs):
                of_tensor.setdefault(name, of_op[op.name])
            of_tensor.update(dict.fromkeys(filter(None, op.outputs), of_op[op.name]))
    activations = frozenset(of_tensor)
    for op in graph.ops:
        if op.name not in of_op:
            of_op[op.name] = _near(graph, op, of_tensor, activations)
            of_tensor.update(dict.fromkeys(filter(None, op.outputs), of_op[op.name]))
    for name in graph.inputs:
        of_tensor.setdefault(name, 0)
    of_tensor.update({name: of_tensor[current] for name, current in following.items() if current in of_tensor})
    return {**of_op, **of_tensor}


def _forward_owners(graph: Graph, forward: set[str], workers: int) -> dict[str, int]:
    """The workers of ops of the forward pass: of layers in turn, where ops are named by layers, else of equal runs."""
    ops = [op for op in graph.ops if op.name in forward]
    layers = {op.name: int(found[1]) for op in ops if (found := _LAYER.match(op.name))}
    if len(set(layers.values())) > 1:
        first = min(layers.values())
        return {name: (layer - first) % workers for name, layer in layers.items()}
    weights = _weights(graph, ops)
    total, before = sum(weights.values()), 0
    found_by_weight: dict[str, int] = {}
    for op in ops:
        found_by_weight[op.name] = min(workers - 1, workers * before // total)
        before += weights[op.name]
    return found_by_weight


def _ancestors(graph: Graph, names: list[str]) -> set[str]:
    """The ops on which tensors depend."""
    found: set[str] = set()
    wanted = set(names)
    for op in reversed(graph.ops):
        if wanted.intersection(op.outputs):
            found.add(op.name)
            wanted.update(op.inputs)
    return found


def _weights(graph: Graph, ops: list[Op]) -> dict[str, int]:
    """By op, the bytes of what it makes and of the states that it reads before any other."""
    seen: set[str] = set()
    weights: dict[str, int] = {}
    for op in ops:
        states = [name for name in op.inputs if name and graph.roles[name] is Role.STATE and name not in seen]
        seen.update(states)
        weights[op.name] = sum(graph.tensors[name].size_bytes for name in (*states, *filter(None, op.outputs)))
    return weights


def _near(graph: Graph, op: Op, of_tensor: dict[str, int], activations: frozenset[str]) -> int:
    """The worker of an op of the backward pass or of the update; notes inputs that nobody has read yet."""
    read = [name for name in op.inputs if name and graph.roles[name] is not Role.CONSTANT]

    def order(name: str) -> tuple[bool, bool, int]:
        return (graph.roles[name] is Role.STATE, name in activations, graph.tensors[name].elements)

    known = [name for name in read if name in of_tensor]
    worker = of_tensor[max(known, key=order)] if known else 0
    for name in read:
        of_tensor.setdefault(name, worker)
    return worker


def pipelined_seconds(ops: Sequence[BoundOp], owner: Mapping[str, int], machine: Machine) -> float:
    """When the last op ends, if each worker runs whichever of its ops has been ready longest.

    What an op on another worker reads goes there once, as soon as it is made; transfers queue at the ports of their
    route, first come, first served.

    Args:
        ops: of the graph, in its order.
        owner: by op its worker.
        machine: whose device of that number is the worker's.
    """
    interconnect, roofline = Interconnect(machine), Roofline(machine.devices)
    number = {name: place for place, bound in enumerate(ops) for name in bound.op.outputs if name}
    readers: defaultdict[int, list[int]] = defaultdict(list)
    lacking = [0] * len(ops)
    for place, bound in enumerate(ops):
        for maker in {number[name] for name in bound.op.inputs if name in number}:
            readers[maker].append(place)
            lacking[place] += 1
    sizes = [_sent_bytes(bound) for bound in ops]
    free: dict[int, float] = {}
    ready: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
    busy: dict[int, bool] = defaultdict(bool)
    # What happens next: an op ends (True), or something comes to a worker that lets ops begin (False).
    events: list[tuple[float, int, int, bool]] = []
    now = 0.0

    def begin(worker: int) -> None:
        if ready[worker] and not busy[worker]:
            _, place = heapq.heappop(ready[worker])
            busy[worker] = True
            taken = float(roofline.seconds(ops[place], UNCUT)[0])
            heapq.heappush(events, (now + taken, place, worker, True))

    def come(maker: int, worker: int) -> None:
        for place in readers[maker]:
            if owner[ops[place].op.name] == worker:
                lacking[place] -= 1
                if not lacking[place]:
                    heapq.heappush(ready[worker], (now, place))

    for place, count in enumerate(lacking):
        if not count:
            heapq.heappush(ready[owner[ops[place].op.name]], (now, place))
    for worker in list(ready):
        begin(worker)
    while events:
        now, place, worker, is_done = heapq.heappop(events)
        come(place, worker)
        if is_done:
            busy[worker] = False
            for other in sorted({owner[ops[reader].op.name] for reader in readers[place]} - {worker}):
                route = interconnect.route(worker, other)
                start = max(now, *(free.get(port, 0.0) for port in route.ports))
                for port in route.ports:
                    free[port] = start + sizes[place] / interconnect.port_bytes_per_s[port]
                there = start + route.latency_seconds + sizes[place] / route.bandwidth_bytes_per_s
                heapq.heappush(events, (there, place, other, False))
        begin(worker)
    assert not any(lacking), "ops wait in a circle"
    return now


def _sent_bytes(bound: BoundOp) -> int:
    """What an op makes, bytes: all of it goes to whoever reads any of it."""
    shapes = zip(bound.node.output_shapes, bound.node.output_dtypes, strict=True)
    return sum(prod(shape) * dtype.item_bytes for shape, dtype in shapes if shape is not None and dtype is not None)


def state_bytes(graph: Graph, owner: Mapping[str, int], workers: int) -> list[int]:
    """By worker, the bytes of its weights, their gradients and their histories: what placement takes at least."""
    found = [0] * workers
    for pair in graph.state:
        is_weight = not pair.current.endswith(".squares")
        found[owner[pair.current]] += (1 + is_weight) * graph.tensors[pair.current].size_bytes
    return found
