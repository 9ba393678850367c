"""Which parts of a graph are found to be copies of one step."""

from collections.abc import Callable

import numpy as np
import pytest

from fast_suite import chosen
from planner import opdefs
from planner.features.zoo import models as zoo
from planner.features.zoo.models.recurrent import rnn
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.partition.build import partition
from planner.search.decide import decide
from planner.search.model.problem import Problem
from planner.search.repeats.unrolled import Copies, find_copies
from planner.search.request import SearchRequest
from planner.training.build import build_training_graph

LAYERS = 3


def unrolled(steps: int) -> Graph:
    return rnn(LAYERS, 16, batch=8, steps=steps)


def copies_of(graph: Graph) -> Copies:
    return find_copies(graph, opdefs.standard().bind_all(graph))


def test_time_steps_are_copies_and_layers_are_not() -> None:
    copies = copies_of(unrolled(6))
    for layer in range(1, LAYERS + 1):
        for cell in ("recurrent", "gates", "split", "f", "kept", "c", "tanh", "h"):
            assert {copies.ops[f"layer{layer}.step{step}.{cell}"] for step in range(6)} == {
                f"layer{layer}.step0.{cell}"
            }


def test_an_activation_is_no_copy_of_its_gradient() -> None:
    copies = copies_of(unrolled(6))
    assert any(name != first for name, first in copies.tensors.items())
    for name, first in copies.tensors.items():
        assert ("grad" in name or "backward" in name) == ("grad" in first or "backward" in first), (name, first)


def test_more_steps_are_no_more_variables() -> None:
    few, many = unrolled(6), unrolled(12)
    count = [len(Problem(graph, opdefs.standard().bind_all(graph), 2).variables) for graph in (few, many)]
    # Slices of the outputs' gradient are one for each step, and each step has its own offset.
    assert count[1] - count[0] <= 3 * 6


@pytest.mark.parametrize("name", ["mlp-5x300", "lenet-5"])
def test_layers_with_weights_of_their_own_are_no_copies(name: str) -> None:
    copies = copies_of(zoo.build(name))
    assert not copies.tensors
    assert not copies.ops


@pytest.mark.parametrize("workers", chosen([2, 3, 4], fast=[2]))
def test_a_plan_of_tied_steps_moves_what_it_says(workers: int) -> None:
    graph = unrolled(4)
    ops = opdefs.standard().bind_all(graph)
    plan = decide(graph, ops, SearchRequest(workers))
    assert partition(graph, ops, plan).program.predicted_bytes == plan.moved_bytes > 0
    assert plan.tilings["layer2.step1.h.y"] == plan.tilings["layer2.step2.h.y"]


def residual(blocks: int, weight: Callable[[int], str]) -> Graph:
    """Blocks of one form, x + tanh(x * norm) @ w; all read one norm's weight, and each the matrix that is named."""
    names = list(dict.fromkeys(weight(number) for number in range(blocks)))
    shapes = {"x0": (4, 8), "norm": (8,), **dict.fromkeys(names, (8, 8))}
    weights: dict[str, np.ndarray] = {"norm": np.ones(8, np.float32)}
    weights.update({name: np.ones((8, 8), np.float32) for name in names})
    ops = []
    for number in range(blocks):
        now, following = f"x{number}", f"x{number + 1}"
        for op_type, inputs, output in (
            ("Mul", (now, "norm"), f"scaled{number}"),
            ("Tanh", (f"scaled{number}",), f"tanh{number}"),
            ("MatMul", (f"tanh{number}", weight(number)), f"product{number}"),
            ("Add", (now, f"product{number}"), following),
        ):
            shapes[output] = (4, 8)
            ops.append(Op(f"{output}.op", op_type, inputs, (output,)))
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name, shape in shapes.items()}
    forward = Graph("residual", tensors, tuple(ops), ("x0",), (f"x{blocks}",), weights)
    return build_training_graph(forward, loss="softmax_cross_entropy", optimizer="adam", learning_rate=0.1)


def test_layers_that_share_a_norm_are_no_copies() -> None:
    """As exporters write them, who give weights of equal values one initializer."""
    copies = copies_of(residual(5, "w{}".format))
    assert not copies.ops
    assert not copies.tensors


def test_steps_that_share_all_weights_are_copies() -> None:
    copies = copies_of(residual(5, lambda _: "w"))
    for part in ("scaled", "tanh", "product"):
        assert {copies.ops[f"{part}{number}.op"] for number in range(5)} == {f"{part}0.op"}


def test_what_lies_side_by_side_is_no_recurrence() -> None:
    """Four inputs through the same layers, as in a network of twins: they share all weights, and hand nothing on."""
    shapes: dict[str, tuple[int, ...]] = {"v": (8, 8), "w": (8, 8)}
    ops: list[Op] = []
    for side in "abcd":
        chain = [("MatMul", (side, "v")), ("Tanh", (f"{side}0",)), ("MatMul", (f"{side}1", "w"))]
        shapes[side] = (4, 8)
        for number, (op_type, inputs) in enumerate(chain):
            shapes[f"{side}{number}"] = (4, 8)
            ops.append(Op(f"{side}{number}.op", op_type, inputs, (f"{side}{number}",)))
    shapes["y"] = (4, 8)
    ops.append(Op("y.op", "Sum", ("a2", "b2", "c2", "d2"), ("y",)))
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name, shape in shapes.items()}
    weights = dict.fromkeys(("v", "w"), np.ones((8, 8), np.float32))
    forward = Graph("sides", tensors, tuple(ops), tuple("abcd"), ("y",), weights)
    graph = build_training_graph(forward, loss="softmax_cross_entropy", optimizer="sgd", learning_rate=0.1)
    copies = copies_of(graph)
    assert not copies.ops
    assert not copies.tensors


@pytest.mark.parametrize(("op_type", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_steps_of_a_recurrent_operator_are_copies(op_type: str, gates: int) -> None:
    """All but the first and the last one; what they read are its weights transposed, and divided by gates."""
    steps, batch, width = 6, 4, 8
    shapes = {
        "x": (steps, batch, width),
        "w": (1, gates * width, width),
        "r": (1, gates * width, width),
        "y": (steps, 1, batch, width),
        "last": (1, batch, width),
        "z": (batch, width),
    }
    constants: dict[str, np.ndarray] = {name: np.ones(shapes[name], np.float32) for name in ("w", "r")}
    constants["axes"] = np.array([0])
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name, shape in shapes.items()}
    tensors["axes"] = Tensor("axes", (1,), DType.INT64)
    hidden = (("hidden_size", width),)
    ops = (
        Op("cell", op_type, ("x", "w", "r"), ("y", "last"), hidden),
        Op("squeeze", "Squeeze", ("last", "axes"), ("z",)),
    )
    forward = Graph("recurrent", tensors, ops, ("x",), ("z",), constants)
    graph = build_training_graph(forward, loss="softmax_cross_entropy", optimizer="sgd", learning_rate=0.1)
    products = [op.name for op in graph.ops if op.op_type == "MatMul"]
    of_step = [[name for name in products if f".forward.{step}." in name] for step in range(1, steps - 1)]
    copies = copies_of(graph)
    assert of_step[0]
    for first, *others in zip(*of_step, strict=True):
        assert {copies.ops[name] for name in others} == {copies.ops[first]}
