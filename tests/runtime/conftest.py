"""Hand-made programs: small enough to be checked by eye, and each with one thing that a plan can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from onnx import FunctionProto, NodeProto, helper

from planner import opdefs
from planner.algebra.region import Region
from planner.algebra.tiling import Reducer
from planner.artifacts.place import PLAN
from planner.artifacts.plan import Plan, digest
from planner.artifacts.plan_folder import MODEL, worker_file, write_folder
from planner.artifacts.program import Buffer, Fetch, Piece, Program, Segment, Source, Step, WorkerProgram
from planner.artifacts.worker_model import WorkerModel, WorkerModels, make_body
from planner.graph.core.model import DType, Graph, Op, StatePair, Tensor
from planner.graph.files.to_onnx import to_model
from planner.machine.rates import Rates
from planner.partition.build import partition
from planner.runtime.plan_files import LoadedPlan
from planner.search.decide import decide
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import NO_RULES, Rules

OPSET = 21


def box(*bounds: tuple[int, int]) -> Region:
    """``box((0, 2), (1, 5))`` is [0:2, 1:5]."""
    return Region(tuple(lo for lo, _ in bounds), tuple(hi for _, hi in bounds))


@dataclass
class Worker:
    """A WorkerProgram in the making."""

    number: int
    buffers: dict[str, Buffer] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    fixed: list[str] = field(default_factory=list)
    collected: list[str] = field(default_factory=list)

    def buffer(self, name: str, tensor: str, region: Region, *, scalar: bool = False) -> str:
        shape = () if scalar else region.shape
        self.buffers[name] = Buffer(name, tensor, region, shape, DType.FLOAT32)
        return name

    def load(self, name: str, tensor: str, region: Region) -> str:
        self.loaded.append(self.buffer(name, tensor, region))
        return name

    def segment(self, name: str, function: str, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self.steps.append(Segment(name, function, tuple(inputs), tuple(outputs), (f"op of {name}", function)))

    def fetch(
        self, target: str, pieces: Sequence[tuple[Region, Sequence[tuple[int, str]]]], reducer: Reducer | None = None
    ) -> None:
        """Fills a buffer that is declared already; the prediction is computed by the rule of program.Fetch."""
        made = tuple(Piece(region, tuple(Source(*source) for source in sources)) for region, sources in pieces)
        moved = sum(4 * p.region.elements for p in made for source in p.sources if source.worker != self.number)
        self.steps.append(Fetch(f"fetch {target}", target, made, reducer, moved))

    def program(self) -> WorkerProgram:
        return WorkerProgram(
            self.number,
            self.buffers,
            tuple(self.steps),
            tuple(self.loaded),
            tuple(self.fixed),
            tuple(self.collected),
        )


@dataclass(frozen=True)
class Case:
    """A program, the graph that it computes, and its bodies."""

    graph: Graph
    program: Program
    bodies: Mapping[str, FunctionProto]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def models(self) -> list[WorkerModel]:
        return [WorkerModel(worker, self.bodies, self.constants, "") for worker in self.program.workers]

    @property
    def plan(self) -> LoadedPlan:
        """In memory: it runs in this process."""
        return LoadedPlan(self.graph, self.program, tuple(self.models))

    def with_worker(self, number: int, **changes: object) -> Case:
        """The case with one worker's program changed."""
        workers = list(self.program.workers)
        workers[number] = replace(workers[number], **changes)
        return replace(self, program=replace(self.program, workers=tuple(workers)))

    def with_fetch(self, number: int, target: str, change: Callable[[Fetch], Fetch]) -> Case:
        """The case with one fetch changed."""
        steps = self.program.workers[number].steps
        new = [change(step) if isinstance(step, Fetch) and step.target == target else step for step in steps]
        return self.with_worker(number, steps=tuple(new))

    def write(self, directory: Path) -> Path:
        """The folder of a plan."""
        nothing = Plan(
            model="m",
            model_digest="",
            cuts=(len(self.program.workers),),
            tilings={},
            strategies={},
            tensor_bytes={},
            moved_bytes=self.program.predicted_bytes,
            soybean_bytes=0,
            peak_bytes=(),
            computing_bytes=0,
            excess_bytes=0,
            repeated_bytes=0,
            rates=Rates(),
            gap_of="bytes",
            strategy="tofu",
            unsplit=(),
        )
        text = nothing.to_json().encode()
        files = {PLAN: text, MODEL: to_model(self.graph).SerializeToString()}
        for worker in self.program.workers:
            model = WorkerModels(self.bodies, opset=OPSET, plan_digest=digest(text)).write(worker, self.constants)
            files[worker_file(worker.worker)] = model.SerializeToString()
        write_folder(directory, files.items(), self.program)
        return directory


def body(name: str, inputs: Sequence[str], outputs: Sequence[str], *nodes: NodeProto) -> dict[str, FunctionProto]:
    return {name: make_body(name, inputs, outputs, nodes, OPSET)}


def tensors(**shapes: tuple[int, ...]) -> dict[str, Tensor]:
    return {name: Tensor(name, shape, DType.FLOAT32) for name, shape in shapes.items()}


@pytest.fixture
def reduction() -> Case:
    """X [4, 6] x W [6, 5], the sum split in two: each worker has half of the 6, reduces half of the rows."""
    graph = Graph(
        "reduction",
        tensors(X=(4, 6), W=(6, 5), Y=(4, 5), Z=(4, 5)),
        (Op("matmul", "MatMul", ("X", "W"), ("Y",)), Op("relu", "Relu", ("Y",), ("Z",))),
        ("X", "W"),
        ("Z",),
        {},
    )
    workers = []
    for number in (0, 1):
        half = (3 * number, 3 * number + 3)
        rows = box((2 * number, 2 * number + 2), (0, 5))
        worker = Worker(number)
        worker.load("X", "X", box((0, 4), half))
        worker.load("W", "W", box(half, (0, 5)))
        worker.buffer("Y.partial", "Y", box((0, 4), (0, 5)))
        worker.segment("product", "matmul", ["X", "W"], ["Y.partial"])
        worker.buffer("Y", "Y", rows)
        worker.fetch("Y", [(rows, [(0, "Y.partial"), (1, "Y.partial")])], Reducer.SUM)
        worker.collected.append(worker.buffer("Z", "Z", rows))
        worker.segment("rectify", "relu", ["Y"], ["Z"])
        workers.append(worker.program())
    bodies = body("matmul", ["a", "b"], ["c"], helper.make_node("MatMul", ["a", "b"], ["c"]))
    bodies |= body("relu", ["a"], ["b"], helper.make_node("Relu", ["a"], ["b"]))
    return Case(graph, Program(tuple(workers), graph.inputs, graph.outputs, ()), bodies)


@pytest.fixture
def training() -> Case:
    """One linear layer by data parallelism on 3 workers: loss = sum((XW)^2), W' = W - lr * dW, W replicated.

    The loss, a scalar, is reduced on worker 0 and then fetched by the others; dW is reduced by rows (reduce-scatter)
    and gathered.
    """
    rate = np.float32(0.01)
    graph = Graph(
        "training",
        tensors(X=(6, 3), W=(3, 2), Y=(6, 2), S=(6, 2), loss=(), Xt=(3, 6), G=(3, 2), rate=(), U=(3, 2), W_next=(3, 2)),
        (
            Op("forward", "MatMul", ("X", "W"), ("Y",)),
            Op("square", "Mul", ("Y", "Y"), ("S",)),
            Op("total", "ReduceSum", ("S",), ("loss",), (("keepdims", 0),)),
            Op("turn", "Transpose", ("X",), ("Xt",), (("perm", (1, 0)),)),
            Op("backward", "MatMul", ("Xt", "Y"), ("G",)),
            Op("scale", "Mul", ("G", "rate"), ("U",)),
            Op("update", "Sub", ("W", "U"), ("W_next",)),
        ),
        ("X", "W"),
        ("loss", "W_next"),
        {"rate": np.array(rate)},
        initial={"W": np.arange(6, dtype=np.float32).reshape(3, 2) / 8 - 0.3},
        state=(StatePair("W", "W_next"),),
    )
    everything = box((0, 3), (0, 2))
    one = box((0, 1))
    workers = []
    for number in range(3):
        worker = Worker(number)
        worker.load("X", "X", box((2 * number, 2 * number + 2), (0, 3)))
        worker.load("W", "W", everything)
        worker.fixed.append(worker.buffer("rate", "rate", one, scalar=True))
        worker.buffer("loss.partial", "loss", one, scalar=True)
        worker.buffer("G.partial", "G", everything)
        worker.segment("step", "step", ["X", "W"], ["loss.partial", "G.partial"])
        worker.buffer("G.tile", "G", box((number, number + 1), (0, 2)))
        worker.fetch("G.tile", [(box((number, number + 1), (0, 2)), [(w, "G.partial") for w in range(3)])], Reducer.SUM)
        worker.buffer("G", "G", everything)
        worker.fetch("G", [(box((w, w + 1), (0, 2)), [(w, "G.tile")]) for w in range(3)])
        worker.collected.append(worker.buffer("loss", "loss", one, scalar=True))
        if number == 0:
            worker.fetch("loss", [(one, [(w, "loss.partial") for w in range(3)])], Reducer.SUM)
        else:
            worker.fetch("loss", [(one, [(0, "loss")])])
        worker.collected.append(worker.buffer("W_next", "W_next", everything))
        worker.segment("update", "update", ["W", "G", "rate"], ["W_next"])
        workers.append(worker.program())
    node = helper.make_node
    bodies = body(
        "step",
        ["x", "w"],
        ["loss", "g"],
        node("MatMul", ["x", "w"], ["y"]),
        node("Mul", ["y", "y"], ["s"]),
        node("ReduceSum", ["s"], ["loss"], keepdims=0),
        node("Transpose", ["x"], ["xt"], perm=[1, 0]),
        node("MatMul", ["xt", "y"], ["g"]),
    )
    bodies |= body(
        "update", ["w", "g", "rate"], ["next"], node("Mul", ["g", "rate"], ["u"]), node("Sub", ["w", "u"], ["next"])
    )
    program = Program(tuple(workers), graph.inputs, graph.outputs, graph.state)
    return Case(graph, program, bodies, {"rate": np.array(rate)})


@pytest.fixture
def owned(training: Case) -> Case:
    """The same, where worker 0 alone owns the state and the others fetch it."""
    case = training
    everything = box((0, 3), (0, 2))
    for number in (1, 2):
        program = case.program.workers[number]
        fetch = Fetch("fetch W", "W", (Piece(everything, (Source(0, "W"),)),), None, 24)
        steps, loaded = (fetch, *program.steps[:-1]), ("X",)
        collected = tuple(name for name in program.collected if name != "W_next")
        buffers = {name: buffer for name, buffer in program.buffers.items() if name != "W_next"}
        case = case.with_worker(number, steps=steps, loaded=loaded, collected=collected, buffers=buffers)
    return case


@pytest.fixture
def halo() -> Case:
    """A convolution of 3 over 8 elements, cut 5 and 3 along them: each worker fetches its neighbour's border."""
    graph = Graph(
        "halo",
        tensors(X=(1, 1, 8), K=(1, 1, 3), H=(1, 1, 8), Y=(1, 1, 8)),
        (
            Op("relu", "Relu", ("X",), ("H",)),
            Op("conv", "Conv", ("H", "K"), ("Y",), (("kernel_shape", (3,)), ("pads", (1, 1)))),
        ),
        ("X",),
        ("Y",),
        {"K": np.array([[[1.0, -2.0, 0.5]]], np.float32)},
    )
    tiles, wanted = [(0, 5), (5, 8)], [(0, 6), (4, 8)]
    workers = []
    for number in (0, 1):
        worker = Worker(number)
        own, other = (0, 1), (0, 1)
        tile = box((0, 1), (0, 1), tiles[number])
        worker.load("X", "X", tile)
        worker.fixed.append(worker.buffer("K", "K", box(own, other, (0, 3))))
        worker.buffer("H", "H", tile)
        worker.segment("first", f"relu{number}", ["X"], ["H"])
        worker.buffer("H.wide", "H", box(own, other, wanted[number]))
        border = box(own, other, (5, 6) if number == 0 else (4, 5))
        pieces = [(tile, [(number, "H")]), (border, [(1 - number, "H")])]
        worker.fetch("H.wide", pieces)
        worker.collected.append(worker.buffer("Y", "Y", tile))
        worker.segment("second", f"conv{number}", ["H.wide", "K"], ["Y"])
        workers.append(worker.program())
    bodies: dict[str, FunctionProto] = {}
    for number, pads in enumerate(([1, 0], [0, 1])):
        bodies |= body(f"relu{number}", ["a"], ["b"], helper.make_node("Relu", ["a"], ["b"]))
        conv = helper.make_node("Conv", ["a", "k"], ["b"], kernel_shape=[3], pads=pads)
        bodies |= body(f"conv{number}", ["a", "k"], ["b"], conv)
    return Case(graph, Program(tuple(workers), graph.inputs, graph.outputs, ()), bodies, dict(graph.constants))


@pytest.fixture
def plan_of() -> Callable[..., LoadedPlan]:
    """Plans a graph and loads the plan from memory; without ``arenas``, every buffer has memory of its own."""

    def make(graph: Graph, workers: int, *, arenas: bool = True, rules: Rules = NO_RULES) -> LoadedPlan:
        ops = opdefs.standard().bind_all(graph)
        partitioned = partition(graph, ops, decide(graph, ops, SearchRequest(workers, rules=rules)))

        def kept(program: WorkerProgram) -> WorkerProgram:
            return program if arenas else replace(program, arena=None)

        program = replace(partitioned.program, workers=tuple(kept(worker) for worker in partitioned.program.workers))
        models = tuple(
            WorkerModel(worker, partitioned.bodies, fixed, "")
            for worker, fixed in zip(program.workers, partitioned.fixed, strict=True)
        )
        return LoadedPlan(graph, program, models, model_digest="of the model")

    return make
