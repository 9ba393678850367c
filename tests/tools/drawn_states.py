"""Steps whose states are updated in drawn ways: by products, convolutions, cells, norms, reductions, gathers, and
element-wise ops before and after them. Each runs in every engine, with next states in place and with nothing in place.

``python tests/tools/drawn_states.py 400 [SEED]`` draws so many, runs each on 1, 2 and 4 workers, prints what differs
from NumPy, and names engines that give other bits than the same plan with memory of its own for every buffer.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from onnx.reference import ReferenceEvaluator

from fake_channel import PostOffice
from fake_cupy import FakeCupy, fake_session
from planner import opdefs
from planner.algebra.region import Region
from planner.artifacts.worker_model import WorkerModel
from planner.graph.core.model import Attribute, DType, Graph, Op, StatePair, Tensor
from planner.graph.files.to_onnx import to_model
from planner.partition.build import partition
from planner.runtime.engine.core.exchange import Exchange
from planner.runtime.engine.core.interface import InProcessEngine
from planner.runtime.engine.gpu.cuda import CudaBackend
from planner.runtime.plan_files import LoadedPlan
from planner.runtime.values.state import Values
from planner.search.decide import decide
from planner.search.request import SearchRequest
from thread_ranks import STEPS, shapes_of, stepped, together

Shape = tuple[int, ...]
ONE = ("Abs", "Identity", "Neg", "Relu", "Sigmoid", "Tanh")
TWO = ("Add", "Add", "Mul", "Sub")


class Drawing:
    """A step that grows op by op; all its values but parameters have one shape.

    Args:
        draw: what is drawn from.
    """

    def __init__(self, draw: np.random.Generator) -> None:
        self.draw = draw
        size = int(draw.choice([8, 16, 32, 64]))
        self.is_flat = bool(draw.integers(3))
        self.shape: Shape = (size, size) if self.is_flat else (2, 4, size // 2, size // 2)
        self.tensors: dict[str, Tensor] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.ops: list[Op] = []
        self.inputs: list[str] = []
        self.values = [self.given("x"), *(self.given(f"s{number}") for number in range(draw.integers(1, 4)))]
        self.states = self.values[1:]

    def given(self, name: str, shape: Shape | None = None) -> str:
        self.tensors[name] = Tensor(name, self.shape if shape is None else shape, DType.FLOAT32)
        self.inputs.append(name)
        return name

    def constant(self, value: float | np.ndarray) -> str:
        array = np.asarray(value, None if isinstance(value, np.ndarray) else np.float32)
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        self.tensors[name] = Tensor(name, array.shape, DType.INT64 if array.dtype.kind == "i" else DType.FLOAT32)
        return name

    def op(self, op_type: str, *inputs: str, shape: Shape | None = None, lead: int = 0, **attributes: Attribute) -> str:
        """An op; its result is the output after ``lead`` omitted ones."""
        name = f"t{len(self.ops)}"
        self.tensors[name] = Tensor(name, self.shape if shape is None else shape, DType.FLOAT32)
        told = tuple(sorted(attributes.items()))
        self.ops.append(Op(f"{op_type}.{name}", op_type, inputs, (*[""] * lead, name), told))
        return name

    def any(self) -> str:
        return str(self.draw.choice(self.values)) if self.draw.integers(2) else "x"

    def weight(self, *shape: int) -> str:
        """A parameter, scaled so that products stay as large as what they are of."""
        raw = self.given(f"w{len(self.inputs)}", shape)
        return self.op("Mul", raw, self.constant(float(np.prod(shape[1:])) ** -0.5), shape=shape)

    def element_wise(self, a: str) -> str:
        kind = self.draw.integers(6)
        if kind == 0:
            return self.op(str(self.draw.choice(ONE)), a)
        if kind == 1:
            return self.op("Mul", a, self.constant(float(self.draw.choice([0.9, 1.0, 1.702]))))
        if kind == 2:
            return self.op("Mul", a, self.op("Sigmoid", self.op("Mul", a, self.constant(1.702))))
        if kind == 3:
            half = self.op("Div", a, self.constant(2**0.5))
            return self.op("Mul", self.op("Mul", a, self.op("Add", self.op("Erf", half), self.constant(1.0))),
                           self.constant(0.5))  # fmt: skip
        if kind == 4:
            return self.op("Div", a, self.op("Add", self.op("Abs", self.any()), self.constant(1.0)))
        pair = (a, self.any())
        return self.op(str(self.draw.choice(TWO)), *(pair if self.draw.integers(2) else pair[::-1]))

    def mixing(self, a: str) -> str:
        """An op that makes an element of several."""
        size, axis = self.shape[-1], int(self.draw.integers(len(self.shape)))
        kind = self.draw.integers(8)
        if kind == 0:
            return self.op("MatMul", *((a, self.weight(size, size)) if self.draw.integers(2) else (a, self.any())))
        if kind == 1 and self.is_flat:
            third = [self.any()] if self.draw.integers(2) else []
            turned = int(self.draw.integers(2))
            return self.op("Gemm", a, self.weight(size, size), *third, alpha=0.5, transA=turned)
        if kind == 1:
            return self.op("Conv", a, self.weight(4, 4, 3, 3), pads=(1, 1, 1, 1))
        if kind == 2 and self.is_flat:
            long = (1, size, size)
            shape = self.constant(np.array(long))
            x, h = (self.op("Reshape", one, shape, shape=long) for one in (self.any(), a))
            w, r = self.weight(*long), self.weight(*long)
            last = self.op("RNN", x, w, r, self.weight(1, 2 * size), "", h, shape=long, lead=1, hidden_size=size)
            return self.op("Reshape", last, self.constant(np.array(self.shape)))
        if kind == 3:
            mean = self.op(
                str(self.draw.choice(["ReduceMean", "ReduceMax"])), a, self.constant(np.array([axis])),
                shape=tuple(1 if dim == axis else one for dim, one in enumerate(self.shape)),
            )  # fmt: skip
            return self.op("Sub", *((a, mean) if self.draw.integers(2) else (self.any(), mean)))
        if kind == 4:
            return self.op("Gather", a, self.constant(self.draw.permutation(self.shape[axis])), axis=axis)
        if kind == 5:
            return self.op("LayerNormalization", a, self.weight(size), axis=-1)
        if kind == 6:
            order = (*range(len(self.shape) - 2), len(self.shape) - 1, len(self.shape) - 2)
            return self.op("Transpose", a, perm=order)
        return self.op("Softmax", a, axis=-1)

    def graph(self) -> Graph:
        """The whole step."""
        following = []
        for state in self.states:
            value = state
            # Most have one op that mixes and one behind it: what the runtime makes one kernel of.
            for kind, counts in ((self.element_wise, (0, 0, 0, 1)), (self.mixing, (0, 1, 1, 2)),
                                 (self.element_wise, (0, 1, 1, 2))):  # fmt: skip
                for _ in range(self.draw.choice(counts)):
                    value = kind(value)
                    self.values.append(value)
            if value in self.tensors and value not in self.inputs and value not in following:
                following.append(value)
            else:
                following.append(self.op(str(self.draw.choice(["Identity", "Abs", "Neg"])), value))
                self.values.append(following[-1])
        results = [*following, self.element_wise(self.mixing(self.any()))]
        wide = int(self.draw.choice([0, 64, 256, 512, 512]))
        if wide:
            results.append(self.op("MatMul", self.given("u", (wide, wide)), self.given("v", (wide, wide)),
                                   shape=(wide, wide)))  # fmt: skip
        pairs = tuple(map(StatePair, self.states, following))
        return Graph("step", self.tensors, tuple(self.ops), tuple(self.inputs), tuple(dict.fromkeys(results)),
                     self.constants, state=pairs)  # fmt: skip


def steps(count: int, seed: int) -> Iterator[Graph]:
    """So many drawn steps."""
    for number in range(count):
        yield Drawing(np.random.default_rng([seed, number])).graph()


@dataclass(frozen=True)
class Planned:
    """A step's plan."""

    plan: LoadedPlan

    @classmethod
    def of(cls, graph: Graph, workers: int) -> Planned:
        ops = opdefs.standard().bind_all(graph)
        made = partition(graph, ops, decide(graph, ops, SearchRequest(workers, effort="quick")))
        models = tuple(
            WorkerModel(worker, made.bodies, fixed, "")
            for worker, fixed in zip(made.program.workers, made.fixed, strict=True)
        )
        return cls(LoadedPlan(graph, made.program, models))

    @property
    def in_place(self) -> int:
        """How many next states lie over their states, on all workers together."""
        return sum(
            worker.arena is not None and worker.arena.offsets[pair.current] == worker.arena.offsets[pair.following]
            for worker in self.plan.program.workers
            for pair in self.plan.graph.state
            if {pair.current, pair.following} <= worker.buffers.keys()
        )

    def apart(self) -> dict[str, bytes]:
        """The bits of what some steps give if every buffer has memory of its own."""
        models = [replace(one, program=replace(one.program, arena=None)) for one in self.plan.models]
        with InProcessEngine(models, self.plan.program.state) as engine:
            return stepped(engine, Values(self.plan.graph), shapes_of(self.plan))[0]

    def engines(self) -> dict[str, dict[str, bytes]]:
        """The same by engine, as the plan has it: threads, ranks, and GPUs over a stand-in."""
        plan = self.plan
        programs, values, shapes = plan.program.workers, Values(plan.graph), shapes_of(plan)
        with InProcessEngine(plan.models, plan.program.state) as engine:
            local = stepped(engine, values, shapes)[0]
        ranks = together(plan, PostOffice(len(programs), 1), lambda engine: stepped(engine, values, shapes)[0])

        def backend(exchange: Exchange) -> CudaBackend:
            return CudaBackend(programs, exchange, [0] * len(programs), FakeCupy(), fake_session)

        with InProcessEngine(plan.models, plan.program.state, make_backend=backend) as engine:
            cuda = stepped(engine, values, shapes)[0]
        return {"local": local, "mpi": ranks[0], "cuda": cuda}

    def reference(self) -> dict[str, np.ndarray]:
        """What NumPy gives."""
        graph, values = self.plan.graph, Values(self.plan.graph)
        whole = {name: values.tile(name, Region.whole(graph.tensors[name].shape)) for name in graph.inputs}
        model = ReferenceEvaluator(to_model(graph))
        for _ in range(STEPS):
            made = dict(zip(graph.outputs, model.run(None, whole), strict=True))
            whole.update({pair.current: made[pair.following] for pair in graph.state})
        return made

    def faults(self) -> list[str]:
        """What differs."""
        apart, found = self.apart(), []
        for name, wanted in self.reference().items():
            array = np.frombuffer(apart[name], np.float32).reshape(wanted.shape)
            if not np.allclose(array, wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max()):
                found.append(f"{name} is not NumPy's: {np.abs(array - wanted).max()}")
        return [*found, *(f"{name} has other bits" for name, bits in self.engines().items() if bits != apart)]


def main(count: int, seed: int = 1) -> None:
    """Runs drawn steps, and prints what differs."""
    told: Counter[str] = Counter()
    for number, graph in enumerate(steps(count, seed)):
        for workers in (1, 2, 4):
            planned = Planned.of(graph, workers)
            faults = planned.faults()
            told["plans"] += 1
            told["different"] += bool(faults)
            told["states"] += len(graph.state) * workers
            told["in place"] += planned.in_place
            for fault in faults:
                print(f"step {number} on {workers}: {fault}", flush=True)
        if number % 20 == 19:
            print(number + 1, dict(told), file=sys.stderr, flush=True)
    print(dict(told))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
