"""Operator placement: every op whole on one worker, the baseline of Tofu, section 7.1.

Ops of the forward pass are divided into runs of equal weight, one for each worker in turn; the weight of an op is the
bytes of what it makes and of the state that it reads first, so that memory is spread. All other ops go to where their
state is, else to where the largest activation that they read was made, else to where their largest input was. Workers
run side by side, so that layers of a recurrent network that are on different workers work as a pipeline. Each transfer
is counted and carried out as in any other plan.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path

from planner.algebra.tiling import Only, Tiling
from planner.artifacts.place import PLAN
from planner.artifacts.plan import digest
from planner.artifacts.plan_folder import write_folder
from planner.cost.by_op import op_bytes
from planner.cost.tables import CostTables
from planner.descriptions import in_force
from planner.graph.model import Graph, Op, Role
from planner.graph.rewriting.randomness import lower_randomness
from planner.graph.to_onnx import to_model
from planner.partition.build import complete_plan, partition, plan_files, told_by_program, worker_files
from planner.planning.bodies import decide_with_bodies
from planner.progress import silent
from planner.search.request import SearchRequest
from planner.training.doors.read import read_step


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
    moved, tables = dict.fromkeys(tilings, 0), CostTables()
    for bound in decided.ops:
        for name, amount in op_bytes(decided.graph, bound, strategies, tilings, tables):
            moved[name] += amount
    plan = replace(
        decided,
        cuts=(workers,),
        tilings=tilings,
        strategies=strategies,
        tensor_bytes=moved,
        moved_bytes=sum(moved.values()),
        certified_gap=None,
        strategy="placement",
    )
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
    weights = _weights(graph, [op for op in graph.ops if op.name in forward])
    total, before = sum(weights.values()), 0
    of_op: dict[str, int] = {}
    of_tensor: dict[str, int] = {}
    for op in graph.ops:
        if op.name in forward:
            of_op[op.name] = min(workers - 1, workers * before // total)
            before += weights[op.name]
            for name in filter(None, op.inputs):
                of_tensor.setdefault(name, of_op[op.name])
            of_tensor.update(dict.fromkeys(filter(None, op.outputs), of_op[op.name]))
    activations = frozenset(of_tensor)
    for op in graph.ops:
        if op.name not in forward:
            of_op[op.name] = _near(graph, op, of_tensor, activations)
            of_tensor.update(dict.fromkeys(filter(None, op.outputs), of_op[op.name]))
    for name in graph.inputs:
        of_tensor.setdefault(name, 0)
    of_tensor.update({name: of_tensor[current] for name, current in following.items() if current in of_tensor})
    return {**of_op, **of_tensor}


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
