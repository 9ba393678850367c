"""Writes each worker's segments, runs of compute between fetches, as ONNX local functions; ``breaks`` says which ops.

Equal runs on equal shapes share one function, on all workers, so that the runtime makes one session of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from planner.artifacts.program import Buffer, Fetch, Program, Segment, Step, WorkerProgram
from planner.artifacts.worker_model import make_body
from planner.counted import counted
from planner.graph.core.model import Graph, Op
from planner.graph.files.protos import elem_type_of, op_to_node
from planner.graph.files.to_onnx import domain_version
from planner.partition.alike import Kinds
from planner.partition.local_work import LocalWork, told_apart
from planner.partition.lowered import Lowered


@dataclass(frozen=True)
class Partitioned:
    """A program and what its segments compute."""

    program: Program
    bodies: Mapping[str, onnx.FunctionProto]
    """By function name."""
    fixed: tuple[Mapping[str, np.ndarray], ...]
    """By worker: values of the buffers that are filled once."""


def assemble(graph: Graph, lowered: Lowered, kinds: Kinds, *, lean: bool = False) -> Partitioned:
    """Turns lowered epochs into worker programs and functions.

    Args:
        graph: that was planned.
        lowered: each of its epochs becomes a round of fetches and one segment on each worker that has work.
        kinds: of its workers.
        lean: segments hand out what only their own ops read, too.
    """
    bodies = _Bodies(graph)
    handed_out = []
    # Once for each kind: workers of one kind hand out the same.
    for kind, worker in enumerate(kinds.first):
        work = [epoch.work[worker] for epoch in lowered.epochs]
        read = set(lowered.collected[worker]).union(*kinds.reads[kind])
        handed_out.append(_handed_out(work, lowered.buffers[worker], lean=lean) | read)
    segments: dict[tuple[int, ...], Segment] = {}
    """By number of the epoch, kind of the worker, and identity of the works: workers that do the same share it."""
    programs = []
    for worker in counted(range(len(kinds.of)), "making programs: segments of worker", len(lowered.epochs)):
        buffers, kind = lowered.buffers[worker], kinds.of[worker]
        steps: list[Step] = []
        for number, epoch in enumerate(lowered.epochs):
            steps.extend(epoch.fetches[worker])
            works = epoch.work[worker]
            if works:
                key = (number, kind, *map(id, works))
                if key not in segments:
                    segments[key] = bodies.segment(f"segment {number}", works, buffers, handed_out[kind])
                steps.append(segments[key])
        collected = lowered.collected[worker]
        loaded = (*(name for name in graph.inputs if name in buffers), *lowered.absent[worker])
        used = _used_buffers(steps).union(collected, loaded)
        programs.append(
            WorkerProgram(
                worker=worker,
                buffers=buffers.only(used),
                steps=tuple(steps),
                loaded=loaded,
                fixed=tuple(lowered.fixed[worker]),
                collected=collected,
            )
        )
    program = Program(tuple(programs), graph.inputs, graph.outputs, graph.state)
    return Partitioned(program, bodies.functions, lowered.fixed)


def _handed_out(work: Sequence[Sequence[LocalWork]], buffers: Mapping[str, Buffer], *, lean: bool) -> set[str]:
    """The buffers of a worker that its ops make and later ones read; lean: that any of its ops read."""
    last: dict[str, int] = {}
    for number, works in enumerate(work):
        for part in works:
            last.update(dict.fromkeys(part.reads, number))
    later = -1 if lean else 0
    return {
        name
        for number, works in enumerate(work)
        for part in works
        for name in part.makes
        if last.get(name, -1) > number + later and name in buffers
    }


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


@dataclass(frozen=True, slots=True)
class _Outline:
    """A run of ops without the shapes of its buffers."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    ops: tuple[str, ...]
    content: Hashable
    """Equal for runs that do the same, whatever their buffers are called."""


class _Bodies:
    """The functions of segments: one for equal runs on equal shapes.

    Attributes:
        functions: by name.
    """

    def __init__(self, graph: Graph) -> None:
        self.functions: dict[str, onnx.FunctionProto] = {}
        self._graph = graph
        self._outlines: dict[tuple[Hashable, ...], _Outline] = {}
        self._inside: dict[tuple[int, ...], tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self._names: dict[Hashable, str] = {}
        self._attributes: dict[int, Hashable] = {}

    def segment(
        self, name: str, work: Sequence[LocalWork], buffers: Mapping[str, Buffer], handed_out: set[str]
    ) -> Segment:
        """A run of ops on a worker.

        Args:
            name: of the segment.
            work: in order.
            buffers: of the worker.
            handed_out: buffers that are read after the run, or by a fetch.
        """
        alike = tuple(map(id, work))  # workers that do the same share what says so
        if alike not in self._inside:
            self._inside[alike] = _read_and_made(work)
        inputs, results = self._inside[alike]
        outputs = tuple([name for name in results if name in handed_out])
        key = (alike, outputs)
        if key not in self._outlines:
            self._outlines[key] = self._outline(work, inputs, outputs)
        outline = self._outlines[key]
        kinds = "".join([f"{buffers[value].dtype.value}{buffers[value].shape}" for value in (*inputs, *outputs)])
        inner = _untold(work, buffers, {*inputs, *outputs})
        content = (
            outline.content,
            kinds,
            tuple((results.index(value), buffers[value].dtype, buffers[value].shape) for value in inner),
        )
        if content not in self._names:
            body = self._body(work, inputs, outputs, buffers, inner)
            body.name = _digest(body.SerializeToString(deterministic=True) + kinds.encode())
            self.functions.setdefault(body.name, body)
            self._names[content] = body.name
        return Segment(name, self._names[content], inputs, outputs, outline.ops)

    def _outline(self, work: Sequence[LocalWork], inputs: tuple[str, ...], outputs: tuple[str, ...]) -> _Outline:
        canonical = _canonical(work, inputs, outputs)
        nodes = []
        constants: list[Hashable] = []
        for part in work:
            for node in part.nodes:
                key = id(node.attributes)  # those of equal ops are one object
                if key not in self._attributes:
                    self._attributes[key] = told_apart(node.attributes)
                reads, makes = (tuple([canonical[value] for value in names]) for names in (node.inputs, node.outputs))
                nodes.append((node.op_type, node.domain, self._attributes[key], reads, makes))
            for name, value in part.constants.items():
                if name in canonical:
                    constants.append((canonical[name], str(value.dtype), value.shape, value.tobytes()))
        ops = tuple(dict.fromkeys([part.op for part in work]))
        return _Outline(inputs, outputs, ops, (len(inputs), len(outputs), tuple(nodes), tuple(constants)))

    def _body(
        self,
        work: Sequence[LocalWork],
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        buffers: Mapping[str, Buffer],
        inner: Sequence[str],
    ) -> onnx.FunctionProto:
        """The function of a run; ``inner``: buffers of whose types ONNX cannot tell."""
        constants = {key: value for part in work for key, value in part.constants.items()}
        canonical = _canonical(work, inputs, outputs)
        nodes: list[onnx.NodeProto] = []
        written: set[str] = set()
        for part in work:
            for node in part.nodes:
                # A constant stands right before its first reader: a function's nodes are in topological order.
                for value in node.inputs:
                    if value in constants and value not in written:
                        written.add(value)
                        tensor = numpy_helper.from_array(constants[value])
                        nodes.append(helper.make_node("Constant", [], [canonical[value]], value=tensor))
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
        domains = {node.domain: domain_version(self._graph, node.domain) for node in nodes if node.domain}
        return make_body(
            "f",
            [canonical[value] for value in inputs],
            [canonical[value] for value in outputs],
            nodes,
            self._graph.opset,
            domains=dict(sorted(domains.items())),
            types=[
                helper.make_tensor_value_info(
                    canonical[name], elem_type_of(buffers[name].dtype), list(buffers[name].shape)
                )
                for name in inner
            ],
        )


def _digest(content: bytes) -> str:
    return "f" + hashlib.sha256(content).hexdigest()[:16]


def _read_and_made(work: Sequence[LocalWork]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a run of ops reads from outside of it, and what it makes, each once, in order."""
    results = dict.fromkeys([output for part in work for output in part.makes])
    constants = {name for part in work for name in part.constants}
    read = dict.fromkeys([name for part in work for name in part.reads])
    return tuple([name for name in read if name not in results and name not in constants]), tuple(results)


def _canonical(work: Sequence[LocalWork], inputs: Sequence[str], outputs: Sequence[str]) -> dict[str, str]:
    """What values are called in a function: equal in equal runs."""
    constants = {name for part in work for name in part.constants}
    canonical: dict[str, str] = {"": ""}
    canonical.update({buffer: f"i{number}" for number, buffer in enumerate(inputs)})
    canonical.update({buffer: f"o{number}" for number, buffer in enumerate(outputs)})
    for part in work:
        for node in part.nodes:
            for value in node.inputs:
                if value in constants and value not in canonical:
                    canonical[value] = f"c{len(canonical)}"
            for value in node.outputs:
                if value not in canonical:
                    canonical[value] = f"t{len(canonical)}"
    return canonical


def _untold(work: Sequence[LocalWork], buffers: Mapping[str, Buffer], outside: set[str]) -> list[str]:
    """Buffers inside of a run that ops of other domains, and control flow, make: ONNX cannot tell their types."""
    results = dict.fromkeys([name for part in work for name in part.untold])
    return [name for name in results if name in buffers and name not in outside]
