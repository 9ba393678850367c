"""Counterparts: a graph under other names, in other sizes, in another order, and edited."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from planner.features.zoo.models import build
from planner.graph.compare.counterparts import counterparts, in_common
from planner.graph.core.model import Graph, Op
from planner.graph.folding.foreign import EVERY_OPERATOR
from planner.graph.reading.from_onnx import read_model

Renamed = Callable[[Graph, int], tuple[Graph, dict[str, str]]]
Reordered = Callable[[Graph, int], Graph]
MODELS = ("mlp-3x24", "lenet-5", "gpt-2x64")


def without(graph: Graph, name: str) -> Graph:
    """The graph without an op that makes what it reads in the same shape; its readers read that."""
    gone = next(op for op in graph.ops if op.name == name)
    made, read = gone.outputs[0], gone.inputs[0]
    assert graph.tensors[made].shape == graph.tensors[read].shape
    ops = tuple(
        replace(op, inputs=tuple(read if each == made else each for each in op.inputs))
        for op in graph.ops
        if op is not gone
    )
    return replace(graph, ops=ops, tensors={each: tensor for each, tensor in graph.tensors.items() if each != made})


@pytest.mark.parametrize("name", MODELS)
def test_a_graph_of_other_sizes_and_equal_names_is_told_by_them(name: str) -> None:
    first, second = build(name, batch=8), build(name, batch=16)
    found = counterparts(first, second)
    assert found.is_of_one_structure
    assert found.ops == {op.name: op.name for op in first.ops}
    assert all(found.tensors[name] == name for name in first.tensors.keys() & second.tensors.keys())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_op_and_tensor_is_found_under_other_names(
    name: str, seed: int, renamed: Renamed, reordered: Reordered
) -> None:
    graph = build(name, batch=8)
    other, new = renamed(reordered(graph, seed), seed)
    found = counterparts(graph, other)
    assert found.by == "places"
    assert found.ops == {op.name: new[op.name] for op in graph.ops}
    assert found.tensors == {tensor: new[tensor] for tensor in graph.tensors}


@pytest.mark.parametrize("is_renamed", [False, True])
def test_an_op_that_is_gone_is_gone_alone(is_renamed: bool, renamed: Renamed) -> None:
    graph = build("lenet-5", batch=8)
    tanh = next(op for op in graph.ops if op.op_type == "Tanh")
    shorter = without(graph, tanh.name)
    other, new = renamed(shorter, 3) if is_renamed else (shorter, {op.name: op.name for op in graph.ops})
    for one, two in ((graph, other), (other, graph)):
        found = counterparts(one, two)
        assert found.by == "surroundings"
        assert len(found.ops) == len(graph.ops) - 1
        pairs = found.ops.items() if one is graph else ((twin, name) for name, twin in found.ops.items())
        assert all(new[name] == twin for name, twin in pairs)


def test_a_layer_more_is_there_alone() -> None:
    shorter, longer = build("gpt-2x64", batch=2), build("gpt-3x64", batch=2)
    found = counterparts(shorter, longer)
    assert len(found.ops) == len(shorter.ops)
    others = {name: twin for name, twin in found.ops.items() if name != twin}
    assert others == {"Mul.block2.add2.y.grad": "Mul.block3.add2.y.grad"}, "what comes back from the loss"


def test_no_counterpart_is_given_twice_and_types_are_equal() -> None:
    first, second = build("lenet-5", batch=8), build("alexnet", batch=8)
    found = counterparts(first, second)
    types = [{op.name: op.op_type for op in graph.ops} for graph in (first, second)]
    assert found.ops
    assert len(set(found.ops.values())) == len(found.ops)
    assert len(set(found.tensors.values())) == len(found.tensors)
    assert all(types[0][name] == types[1][twin] for name, twin in found.ops.items())


def test_equal_names_of_ops_of_other_types_say_nothing() -> None:
    graph = build("mlp-3x24", batch=8)
    turned: tuple[Op, ...] = tuple(replace(op, op_type="Div") if op.op_type == "Mul" else op for op in graph.ops)
    found = counterparts(graph, replace(graph, ops=turned))
    assert set(found.ops) == {op.name for op in graph.ops if op.op_type != "Mul"}


def test_graphs_with_nothing_in_common_have_no_counterparts() -> None:
    assert not counterparts(build("mlp-3x24", batch=8), build("alexnet", batch=8)).ops


MODELS_OF_OTHERS = Path(__file__).parents[1] / "models"


@pytest.mark.parametrize(
    ("one", "two", "least", "most"),
    [
        ("resnet50.onnx", "resnet50.raw.onnx", 0.5, 0.7),
        ("exports/vit.onnx", "exports/vit.raw.onnx", 0.8, 1),
        ("exports/llama.onnx", "world/hf-llama.onnx", 0.9, 1),
        ("world/hf-gpt2.onnx", "world/hf-llama.onnx", 0, 0.3),
        ("world/hf-bert.onnx", "world/hf-t5.onnx", 0, 0.4),
        ("world/recommender.onnx", "world/unet-bilinear.onnx", 0, 0.3),
    ],
)
def test_versions_of_a_model_have_more_in_common_than_other_models(
    one: str, two: str, least: float, most: float
) -> None:
    first, second = (read_model(MODELS_OF_OTHERS / file, operators=EVERY_OPERATOR) for file in (one, two))
    for a, b in ((first, second), (second, first)):
        share = in_common(a, b, counterparts(a, b)) / min(len(a.ops), len(b.ops))
        assert least <= share <= most
