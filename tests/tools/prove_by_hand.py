"""Partitioned programs written by hand, one line a step: what a proof says of them, and what they compute.

    0: a = x[0:2, 0:4]                           loads a part of an input or a state
    0: p = h[0:2, 0:3] by MatMul (a, w) { o0 = MatMul(i0, i1) }
    0: s = h[0:2, 0:3] of Sum: [0:2, 0:3] 0.p 1.p       fetches, here joining two contributions
    0: give s                                    hands a buffer back

The ops after ``by`` are named by their types, or, where the model has several of one type, by name. The boxes of a
fetch's pieces are in places of the tensor; pieces are parted by semicolons.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx.parser
from onnx import FunctionProto
from onnx.reference import ReferenceEvaluator

from planner.algebra.region import Region
from planner.algebra.tiling import Reducer
from planner.artifacts.program import Buffer, Fetch, Piece, Program, Segment, Source, Step, WorkerProgram
from planner.artifacts.worker_model import SEGMENTS
from planner.descriptions import in_force
from planner.features.prove.proof.calls import Calls
from planner.features.prove.proof.programs import WorkerFile
from planner.features.prove.proof.programs import prove as follow
from planner.features.prove.proof.result import Proof
from planner.features.prove.proof.whole import Whole
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import graph_from_proto

_LINE = re.compile(r"(\d+): (\w+) = (\w+)\[([^]]*)\](?: (by|of) (.*))?")
_CALL = re.compile(r"([\w.+]+) \(([^)]*)\) (\{.*\})")
_HEAD = '<ir_version: 10, opset_import: ["": 21]>'
JOINS = {Reducer.SUM: np.add, Reducer.MAX: np.maximum, Reducer.MIN: np.minimum, Reducer.PROD: np.multiply}


def whole_of(model: str) -> Whole:
    """A model in ONNX's text, without its head, as a proof asks for it."""
    graph = graph_from_proto(onnx.parser.parse_model(f"{_HEAD} net {model}"), state_pairs=())
    descriptions = in_force(None, "replicate")[0]
    return Whole(graph, descriptions.bind_all(graph), descriptions)


@dataclass(frozen=True)
class ByHand:
    """A program and its functions."""

    whole: Whole
    program: Program
    bodies: dict[str, FunctionProto]

    @classmethod
    def read(cls, whole: Whole, text: str) -> ByHand:
        workers: dict[int, tuple[dict[str, Buffer], list[Step], list[str], list[str]]] = {}
        bodies: dict[str, FunctionProto] = {}
        for line in filter(None, map(str.strip, text.splitlines())):
            worker = int(line.partition(":")[0])
            buffers, steps, loaded, given = workers.setdefault(worker, ({}, [], [], []))
            if line.partition(": ")[2].startswith("give "):
                given += line.partition("give ")[2].split()
                continue
            found = _LINE.fullmatch(line)
            assert found, line
            _, name, tensor, box, kind, rest = found.groups()
            shape, dtype = whole.graph.tensors[tensor].shape, whole.graph.tensors[tensor].dtype
            region = _region(box)
            buffers[name] = Buffer(name, tensor, region, region.shape if shape else (), dtype)
            if kind is None:
                loaded.append(name)
            elif kind == "by":
                steps.append(_segment(whole, name, rest, bodies))
            else:
                steps.append(_fetch(worker, buffers[name], rest))
        programs = tuple(
            WorkerProgram(worker, buffers, tuple(steps), tuple(loaded), (), tuple(given), None)
            for worker, (buffers, steps, loaded, given) in sorted(workers.items())
        )
        return cls(whole, Program(programs, whole.graph.inputs, whole.graph.outputs, whole.graph.state), bodies)

    @property
    def proof(self) -> Proof:
        return follow(Calls(self.whole), self.program, [WorkerFile(self.bodies, {}) for _ in self.program.workers])

    def computes_it(self, draw: np.random.Generator, times: int = 2) -> bool:
        """Whether it gives what the model gives, on small whole numbers that are drawn; indices are -1 and 0."""
        return all(self._computes_it(draw) for _ in range(times))

    def _computes_it(self, draw: np.random.Generator) -> bool:
        graph = self.whole.graph
        kinds = {name: (graph.tensors[name].shape, graph.tensors[name].dtype.array_dtype) for name in graph.inputs}
        given = {
            name: draw.integers(*((-1, 1) if dtype.kind == "i" else (-9, 10)), shape).astype(dtype)
            for name, (shape, dtype) in kinds.items()
        }
        wanted = dict(zip(graph.outputs, ReferenceEvaluator(to_model(graph)).run(None, given), strict=True))
        missing = {name: np.ones(np.shape(value), bool) for name, value in wanted.items()}
        for buffer, value in self.executed(given):
            box = _slices(buffer)
            missing[buffer.tensor][box] = False
            if not np.allclose(wanted[buffer.tensor][box], value, rtol=1e-5, atol=1e-5):
                return False
        return not any(map(np.any, missing.values()))

    def executed(self, given: dict[str, np.ndarray]) -> Iterator[tuple[Buffer, np.ndarray]]:
        """What the workers give back; the steps are executed in an order in which each finds what it reads."""
        workers = self.program.workers
        held = [
            {name: given[one.buffers[name].tensor][_slices(one.buffers[name])] for name in one.loaded}
            for one in workers
        ]
        left = [(worker, step) for worker in workers for step in worker.steps]
        while left:
            worker, step = next((w, s) for w, s in left if all(name in held[n] for n, name in _needs(w.worker, s)))
            left.remove((worker, step))
            mine = held[worker.worker]
            if isinstance(step, Segment):
                run = ReferenceEvaluator(self.bodies[step.function])
                body = self.bodies[step.function]
                results = run.run(None, dict(zip(body.input, map(mine.get, step.inputs), strict=True)), attributes={})
                mine.update(zip(step.outputs, results, strict=True))
                continue
            target = worker.buffers[step.target]
            array = mine[step.target] = np.zeros(target.shape, target.dtype.array_dtype)
            for piece in step.pieces:
                found = []
                for source in piece.sources:
                    buffer = workers[source.worker].buffers[source.buffer]
                    inside = piece.region.within(buffer.region) if buffer.shape else ()
                    found.append(held[source.worker][source.buffer][inside])
                value = found[0] if step.reducer is None else JOINS[step.reducer].reduce(found)
                array[piece.region.within(target.region) if target.shape else ()] = value
        for worker in workers:
            for name in worker.collected:
                yield worker.buffers[name], held[worker.worker][name]


def _slices(buffer: Buffer) -> tuple[slice, ...]:
    return tuple(map(slice, *buffer.region.ends)) if buffer.shape else ()


def _needs(worker: int, step: Step) -> list[tuple[int, str]]:
    if isinstance(step, Segment):
        return [(worker, name) for name in step.inputs]
    return [(source.worker, source.buffer) for source in step.sources]


def _region(text: str) -> Region:
    ends = [tuple(map(int, part.split(":"))) for part in text.split(",")] if text.strip() else [(0, 1)]
    return Region(tuple(lo for lo, _ in ends), tuple(hi for _, hi in ends))


def _fetch(worker: int, target: Buffer, text: str) -> Fetch:
    joins, _, rest = text.rpartition(": ") if re.match(r"\w+: ", text) else ("", "", text)
    pieces, taken = [], 0
    for one in rest.split(";"):
        box, _, sources = one.strip()[1:].partition("] ")
        named = [source.split(".") for source in sources.split()]
        pieces.append(Piece(_region(box), tuple(Source(int(number), name) for number, name in named)))
        taken += pieces[-1].region.elements * sum(int(number) != worker for number, _ in named)
    reducer = Reducer(joins) if joins else None
    return Fetch(f"fetch {target.name}", target.name, tuple(pieces), reducer, taken * target.dtype.item_bytes)


def _segment(whole: Whole, output: str, text: str, bodies: dict[str, FunctionProto]) -> Segment:
    found = _CALL.fullmatch(text)
    assert found, text
    ops, inputs, body = found.groups()
    read = tuple(filter(None, (one.strip() for one in inputs.split(","))))
    slots = ", ".join(f"i{number}" for number in range(len(read)))
    name = f"f{len(bodies)}"
    head = f'<domain: "{SEGMENTS}", opset_import: ["": 21]>'
    bodies[name] = onnx.parser.parse_function(f"{head} {name} ({slots}) => (o0) {body}")
    chosen = tuple(
        one
        for wanted in ops.split("+")
        for one, known in whole.ops.items()
        if wanted in (one, known.described_op.op.op_type)
    )
    return Segment(f"part of {output}", name, read, (output,), chosen)
