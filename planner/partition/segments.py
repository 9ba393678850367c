"""Gathers each worker's local ops into segments: runs of compute between fetches, as ONNX local functions.

Equal runs on equal shapes share one function, on all workers, so that the runtime makes one session of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx
from onnx import helper, numpy_helper

from planner.artifacts.program import Buffer, Fetch, Program, Segment, Step, WorkerProgram
from planner.artifacts.worker_model import make_body
from planner.graph.model import Graph, GraphAttribute, Op
from planner.graph.protos import elem_type_of, op_to_node
from planner.graph.to_onnx import domain_version
from planner.partition.alive import sources_read
from planner.partition.local_work import LocalWork
from planner.partition.lower import Lowered
from planner.tdl.local import LocalNode


@dataclass(frozen=True)
class Partitioned:
    """A program and what its segments compute."""

    program: Program
    bodies: Mapping[str, onnx.FunctionProto]
    """By function name."""
    fixed: tuple[Mapping[str, np.ndarray], ...]
    """By worker: values of the buffers that are filled once."""


def assemble(graph: Graph, lowered: Lowered, *, lean: bool = False) -> Partitioned:
    """Turns lowered epochs into worker programs and functions.

    Args:
        graph: that was planned.
        lowered: each of its epochs becomes a round of fetches and one segment on each worker that has work.
        lean: segments hand out what only their own ops read, too.
    """
    read_by_fetches: list[set[str]] = [set() for _ in lowered.buffers]
    for names in sources_read(lowered.epochs):
        for read, found in zip(read_by_fetches, names, strict=True):
            read.update(found)
    bodies: dict[str, onnx.FunctionProto] = {}
    programs = []
    for worker, (buffers, collected) in enumerate(zip(lowered.buffers, lowered.collected, strict=True)):
        wanted = read_by_fetches[worker].union(collected)
        last_read = _last_reads([epoch.work[worker] for epoch in lowered.epochs])
        steps: list[Step] = []
        for number, epoch in enumerate(lowered.epochs):
            steps.extend(epoch.fetches[worker])
            if epoch.work[worker]:
                later = number - 1 if lean else number
                kept = partial(_is_handed_out, wanted, buffers, last_read, later)
                steps.append(_segment(graph, f"segment {number}", epoch.work[worker], buffers, kept, bodies))
        loaded = (*(name for name in graph.inputs if name in buffers), *lowered.absent[worker])
        used = _used_buffers(steps).union(collected, loaded)
        programs.append(
            WorkerProgram(
                worker=worker,
                buffers={name: buffer for name, buffer in buffers.items() if name in used},
                steps=tuple(steps),
                loaded=loaded,
                fixed=tuple(lowered.fixed[worker]),
                collected=collected,
            )
        )
    program = Program(tuple(programs), graph.inputs, graph.outputs, graph.state)
    return Partitioned(program, bodies, lowered.fixed)


def _last_reads(alive: Sequence[Sequence[LocalWork]]) -> dict[str, int]:
    """The last epoch in which a worker's own ops read each name."""
    found: dict[str, int] = {}
    for number, works in enumerate(alive):
        for work in works:
            for node in work.nodes:
                found.update(dict.fromkeys(node.inputs, number))
    return found


def _is_handed_out(
    wanted: set[str], buffers: Mapping[str, Buffer], last_read: Mapping[str, int], epoch: int, name: str
) -> bool:
    """Whether what a node makes is a buffer that is read after an epoch, or by a fetch."""
    return name in wanted or (name in buffers and last_read.get(name, -1) > epoch)


def _used_buffers(steps: Iterable[Step]) -> set[str]:
    """The buffers of a worker that its steps read from outside of a segment, or fill."""
    used: set[str] = set()
    for step in steps:
        if isinstance(step, Fetch):
            used.add(step.target)
        else:
            used.update(step.inputs)
            used.update(step.outputs)
    return used


def _segment(
    graph: Graph,
    name: str,
    work: Sequence[LocalWork],
    buffers: Mapping[str, Buffer],
    kept: Callable[[str], bool],
    bodies: dict[str, onnx.FunctionProto],
) -> Segment:
    """One segment; its function is added to ``bodies`` unless an equal one is there."""
    constants = {key: value for part in work for key, value in part.constants.items()}
    made = {output for part in work for node in part.nodes for output in node.outputs if output}
    read = [name for part in work for node in part.nodes for name in node.inputs if name]
    inputs = tuple(dict.fromkeys(name for name in read if name not in made and name not in constants))
    outputs = tuple(
        name for name in dict.fromkeys(o for part in work for n in part.nodes for o in n.outputs) if kept(name)
    )
    canonical: dict[str, str] = {"": ""}
    canonical.update({buffer: f"i{number}" for number, buffer in enumerate(inputs)})
    canonical.update({buffer: f"o{number}" for number, buffer in enumerate(outputs)})
    nodes: list[onnx.NodeProto] = []
    for part in work:
        for node in part.nodes:
            for value in node.inputs:
                if value in constants and value not in canonical:
                    canonical[value] = f"c{len(canonical)}"
                    tensor = numpy_helper.from_array(constants[value])
                    nodes.append(helper.make_node("Constant", [], [canonical[value]], value=tensor))
            for value in node.outputs:
                canonical.setdefault(value, f"t{len(canonical)}")
            nodes.append(
                op_to_node(
                    Op(
                        name="",
                        op_type=node.op_type,
                        inputs=tuple(canonical[value] for value in node.inputs),
                        outputs=tuple(canonical[value] for value in node.outputs),
                        attributes=tuple(sorted(node.attributes.items())),
                        domain=node.domain,
                    )
                )
            )
    domains = {node.domain: domain_version(graph, node.domain) for node in nodes if node.domain}
    body = make_body(
        "f",
        [canonical[value] for value in inputs],
        [canonical[value] for value in outputs],
        nodes,
        graph.opset,
        domains=dict(sorted(domains.items())),
        types=_types_inside(work, buffers, canonical, {*inputs, *outputs}),
    )
    kinds = "".join(f"{buffers[value].dtype.value}{buffers[value].shape}" for value in (*inputs, *outputs))
    body.name = "f" + hashlib.sha256(body.SerializeToString(deterministic=True) + kinds.encode()).hexdigest()[:16]
    bodies.setdefault(body.name, body)
    return Segment(name, body.name, inputs, outputs, tuple(dict.fromkeys(part.op for part in work)))


def _types_inside(
    work: Sequence[LocalWork], buffers: Mapping[str, Buffer], canonical: Mapping[str, str], outside: set[str]
) -> list[onnx.ValueInfoProto]:
    """Shapes and dtypes of what ops of other domains, and control flow, make inside of a segment: ONNX cannot tell."""
    untold = [node for part in work for node in part.nodes if node.domain or _has_graphs(node)]
    made = [name for node in untold for name in node.outputs]
    return [
        helper.make_tensor_value_info(canonical[name], elem_type_of(buffers[name].dtype), list(buffers[name].shape))
        for name in dict.fromkeys(made)
        if name in buffers and name not in outside
    ]


def _has_graphs(node: LocalNode) -> bool:
    return any(isinstance(value, GraphAttribute) for value in node.attributes.values())
