"""Steps of the built training graphs of ResNet-50 and BERT in the stock runtime, judged by float64.

A network of Relus and maxima is smooth but for its *decisions*: on which side of 0 an activation lies, which element of
a window is the largest. Of half a million some lie within rounding of a tie, and a float32 run that falls on the other
side has another, equally right, gradient: all layers before that point see it, at some 1e-4. So a run is judged by the
float64 step that takes the same decisions, which leaves rounding alone; and apart from that every decision in which the
two differ must lie within rounding of a tie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import stock_runtime
from planner.graph.core.model import Graph, Op
from planner.graph.reading.from_onnx import read_model
from planner.runtime.judge.reference import Reference
from planner.training.build import build_training_graph

MODELS = Path(__file__).parent.parent / "models"
NAMES = ("resnet50", "bert")
RATES = {"sgd": 0.05, "momentum": 0.02, "adam": 0.001}
BATCH = 8
STEPS = 50
KEPT, STRIDE = 24, 7
"""The step whose state is kept, and of how many elements after it one is."""
FIRST_STRIDE = 61
"""The same for the first step."""
RUNS = 4
"""Float32 runs by whose largest error the noise of float32 is told: PyTorch's own, which sums in float64 here and
there, and others in which every result and every gradient is rounded at random."""
EPS = float(np.finfo(np.float32).eps)
LOSS_LIMIT = 1e-5
"""Of the loss, or of 1 where that is less."""
SAME = 1e-6
"""How far two float64 steps may be apart, of a tensor's largest element. Not 1e-12: rate and decays of the graph are
the float32 numbers next to PyTorch's."""
NO_DIGIT = 2**-4
"""A tensor with an own error of that size is noise, as in the verification of runs."""
TIE_LIMIT = 1e-5
"""How far from a tie a decision may be, of the largest element that is compared, for rounding to turn it."""

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Errors:
    """Of one tensor, in units of its largest element."""

    largest: float
    median: float

    @classmethod
    def of(cls, value: np.ndarray, exact: np.ndarray) -> Errors:
        away = np.abs(value.astype(np.float64) - exact) / (np.abs(exact).max() or 1.0)
        return cls(float(away.max()), float(np.median(away)))

    def over(self, own: Errors) -> float:
        """By which factor these are above what the rule allows, where ``own`` is the noise of float32 itself."""
        return max(
            self.largest / max(4 * own.largest, 64 * EPS),
            self.median / max(4 * own.median, 64 * EPS),
        )


def data(model: str, graph: Graph) -> dict[str, np.ndarray]:
    """The batch that everything here is computed with: inputs and labels."""
    rng = np.random.default_rng(0)
    if model == "bert":
        tokens = rng.integers(0, 256, graph.tensors["a_0"].shape)
        return {"a_0": tokens, "a_1": np.ones(tokens.shape, np.int64), "labels": rng.integers(0, 2, BATCH)}
    x = rng.standard_normal(graph.tensors["a_0"].shape).astype(np.float32)
    return {"a_0": x, "labels": rng.integers(0, 10, BATCH)}


class BuiltStep:
    """The training graph of a model, what it computes, and what it should."""

    def __init__(self, model: str, optimizer: str) -> None:
        # PyTorch's Adam adds epsilon where AdamW does.
        self.graph = build_training_graph(
            read_model(MODELS / f"{model}.raw.onnx"), loss="softmax_cross_entropy", learning_rate=RATES[optimizer],
            optimizer="adamw" if optimizer == "adam" else optimizer, batch=BATCH,
        )  # fmt: skip
        self.deciding = tuple(op for op in self.graph.ops if _decides(self.graph, op))
        self.decisions = tuple(op.outputs[0] for op in self.deciding)
        compared = [name for op in self.deciding for name in op.inputs if name in self.graph.producer]
        shown = _showing(self.graph, (*self.decisions, *compared))
        self.session = stock_runtime.session(shown)
        self.plain = Reference(shown)
        given = replace(
            self.graph,
            ops=tuple(op for op in self.graph.ops if op not in self.deciding),
            inputs=(*self.graph.inputs, *self.decisions),
        )
        self.decided = Reference(given)
        self.first = {**self.graph.initial, **data(model, self.graph)}
        """All inputs of the first step."""

    def feeds(self, state: Arrays, step: int) -> dict[str, np.ndarray]:
        """All inputs of a later step, by the state before it; running statistics have no part in it."""
        counted = {"updates": np.array(step, np.int64)} if "updates" in self.graph.inputs else {}
        return {**self.first, **state, **counted}

    def run(self, feeds: Arrays) -> dict[str, np.ndarray]:
        """What the stock runtime computes: the outputs, the decisions and what they are made of."""
        names = [value.name for value in self.session.get_outputs()]
        return dict(zip(names, self.session.run(names, dict(feeds)), strict=True))

    def exact(self, feeds: Arrays) -> dict[str, np.ndarray]:
        """The same in float64."""
        return self.plain.step(feeds)

    def exact_like(self, feeds: Arrays, found: Arrays) -> dict[str, np.ndarray]:
        """The outputs in float64, by the decisions of a run."""
        return self.decided.step({**feeds, **{name: found[name] for name in self.decisions}})

    def turned(self, found: Arrays, exact: Arrays) -> list[float]:
        """How far from a tie each decision is that two runs take differently, of the largest element compared."""
        distances: list[float] = []
        for op in self.deciding:
            (name,) = op.outputs
            differing = found[name] != exact[name]
            if differing.any():
                assert op.op_type in ("Greater", "ArgMax"), f"{op.op_type} decides nothing that rounding turns"
                measure = _from_zero if op.op_type == "Greater" else _from_the_largest
                # Behind a Relu only one of the two sees how far.
                away = np.maximum(measure(op, found, exact[name]), measure(op, exact, found[name]))
                distances.extend(away[differing].tolist())
        return distances

    def next_states(self, outputs: Arrays, names: Sequence[str]) -> dict[str, np.ndarray]:
        following = {pair.current: pair.following for pair in self.graph.state}
        return {name: outputs[following[name]] for name in names}


def _from_zero(op: Op, values: Arrays, _other: np.ndarray) -> np.ndarray:
    """For ``x > 0``: how far x is from 0."""
    operand = np.abs(values[op.inputs[0]])
    return operand / (operand.max() or 1.0)


def _from_the_largest(op: Op, values: Arrays, other: np.ndarray) -> np.ndarray:
    """For ArgMax: by how much the largest is above the one that the other run took."""
    operand, axis = values[op.inputs[0]], op.attribute("axis", 0)
    keeps = bool(op.attribute("keepdims", 1))
    picked = np.take_along_axis(operand, other if keeps else np.expand_dims(other, axis), axis)
    away = (operand.max(axis, keepdims=True) - picked) / (np.abs(operand).max() or 1.0)
    return away if keeps else away.squeeze(axis)


def _decides(graph: Graph, op: Op) -> bool:
    """Whether an op makes something discrete of floats."""
    made, read = (
        [graph.tensors[name].dtype.is_float for name in names if name] for names in (op.outputs, op.inputs)
    )  # fmt: skip
    return len(made) == 1 and not made[0] and any(read)


def _showing(graph: Graph, names: Sequence[str] | Mapping[str, None]) -> Graph:
    return replace(graph, outputs=(*graph.outputs, *names))
