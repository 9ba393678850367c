"""Structure: blind to names, sizes and order; not to wiring."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fast_suite import examples
from planner.features.zoo.models import build
from planner.graph.compare.structure import in_order_of_places, structure_of
from planner.graph.core.check import check_graph
from planner.graph.core.model import DType, Graph, Op, StatePair, Tensor
from planner.graph.reading.from_onnx import read_model

Renamed = Callable[[Graph, int], tuple[Graph, dict[str, str]]]
Reordered = Callable[[Graph, int], Graph]
MODELS = Path(__file__).parent.parent / "models"


def graph_of(ops: list[Op], output: str, sizes: int = 4, state: tuple[StatePair, ...] = ()) -> Graph:
    """A graph of square float matrices."""
    names = dict.fromkeys(name for op in ops for name in (*op.inputs, *op.outputs))
    made = {name for op in ops for name in op.outputs}
    tensors = {name: Tensor(name, (sizes, sizes), DType.FLOAT32) for name in names}
    inputs = tuple(name for name in names if name not in made)
    return Graph("g", tensors, tuple(ops), inputs, (output, *(pair.following for pair in state)), {}, state=state)


CHAIN = [Op("a", "MatMul", ("x", "w"), ("h",)), Op("b", "Relu", ("h",), ("r",)), Op("c", "MatMul", ("r", "v"), ("y",))]


@examples(20)
@given(names=st.integers(0, 2**32 - 1), order=st.integers(0, 2**32 - 1))
def test_names_order_and_sizes_do_not_matter(renamed: Renamed, reordered: Reordered, names: int, order: int) -> None:
    graph = build("lenet-5")
    whole = structure_of(graph)
    other, new = renamed(reordered(graph, order), names)
    found = structure_of(other)
    assert found.digest == whole.digest
    assert {new[name]: key for name, key in whole.keys.items()} == found.keys
    resized = structure_of(build("lenet-5", batch=31))
    assert (resized.digest, resized.keys) == (whole.digest, whole.keys)


@pytest.mark.parametrize("name", ["mlp-5x300", "lenet-5", "gpt-2x1024", "inception-v3", "resnet-50"])
def test_every_op_of_a_network_has_a_place_of_its_own(name: str) -> None:
    graph = build(name)
    keys = structure_of(graph).keys
    assert max(Counter(keys.values()).values()) == 1
    for op in graph.ops:
        for tensor in op.inputs:
            if tensor in graph.producer:
                assert keys[graph.producer[tensor].name] < keys[op.name]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param([*CHAIN[:1], Op("b", "Tanh", ("h",), ("r",)), CHAIN[2]], id="another operator"),
        pytest.param([*CHAIN[:2], Op("c", "MatMul", ("v", "r"), ("y",))], id="inputs exchanged"),
        pytest.param([*CHAIN[:2], Op("c", "MatMul", ("r", "w"), ("y",))], id="a weight shared"),
        pytest.param([CHAIN[0], CHAIN[1], Op("c", "MatMul", ("h", "v"), ("y",))], id="wired past an op"),
        pytest.param([*CHAIN[:2], Op("c", "MatMul", ("r", "v"), ("y",), (("axis", 0),))], id="an axis"),
        pytest.param([*CHAIN[:2], Op("c", "MatMul", ("r", "v"), ("y",), (("mode", "b"),))], id="a mode"),
        pytest.param([*CHAIN[:2], replace(CHAIN[2], domain="mine")], id="a domain"),
    ],
)
def test_wiring_does_matter(other: list[Op]) -> None:
    assert structure_of(graph_of(other, "y")).digest != structure_of(graph_of(CHAIN, "y")).digest


def test_roles_types_and_ranks_do_matter() -> None:
    plain = graph_of(CHAIN, "y")
    whole = structure_of(plain).digest
    tied = replace(plain, state=(StatePair("w", "y"),))
    float16 = {name: replace(tensor, dtype=DType.FLOAT16) for name, tensor in plain.tensors.items()}
    flat = {name: replace(tensor, shape=(1, *tensor.shape)) for name, tensor in plain.tensors.items()}
    constant = replace(plain, inputs=("x", "v"), constants={"w": np.zeros((4, 4), np.float32)})
    others = [tied, replace(plain, tensors=float16), replace(plain, tensors=flat), constant]
    assert len({whole, *(structure_of(other).digest for other in others)}) == 1 + len(others)
    other_state = replace(plain, state=(StatePair("v", "y"),))
    assert structure_of(tied).digest != structure_of(other_state).digest


def test_numbers_that_are_no_directions_do_not_matter() -> None:
    wide = [*CHAIN[:2], Op("c", "MatMul", ("r", "v"), ("y",), (("hidden_size", 8), ("epsilon", 0.5)))]
    assert structure_of(graph_of(wide, "y")).digest == structure_of(graph_of(CHAIN, "y", sizes=6)).digest


def test_equal_branches_share_a_place() -> None:
    ops = [
        Op("one", "Relu", ("x",), ("a",)),
        Op("two", "Relu", ("x",), ("b",)),
        Op("join", "Max", ("a", "a"), ("s",)),
        Op("both", "Max", ("b", "b"), ("t",)),
        Op("all", "Sum", ("s", "t"), ("y",)),
    ]
    keys = structure_of(graph_of(ops, "y")).keys
    assert keys["one"] != keys["two"], "what they lead to is read at two positions"
    twins = [Op("one", "Relu", ("x",), ("a",)), Op("two", "Relu", ("x",), ("b",))]
    twin_graph = replace(graph_of(twins, "a"), outputs=("a", "b"))
    keys = structure_of(twin_graph).keys
    assert keys["one"] == keys["two"]


def test_a_model_from_a_file(renamed: Renamed, reordered: Reordered) -> None:
    graph = read_model(MODELS / "bert_step.onnx")
    other, _ = renamed(reordered(graph, 3), 5)
    assert structure_of(graph).digest == structure_of(other).digest


@examples(20)
@given(names=st.integers(0, 2**32 - 1), order=st.integers(0, 2**32 - 1))
def test_the_order_of_places_is_one_of_execution_and_the_same_for_all(
    renamed: Renamed, reordered: Reordered, names: int, order: int
) -> None:
    graph = build("mlp-4x8", batch=6)
    ordered = in_order_of_places(graph)
    check_graph(ordered)
    assert sorted(ordered.tensors) == sorted(graph.tensors)
    other, new = renamed(reordered(graph, order), names)
    found = in_order_of_places(other)
    assert [op.name for op in found.ops] == [new[op.name] for op in ordered.ops]
    assert list(found.tensors) == [new[name] for name in ordered.tensors]
