"""Models made by other people's tools: read, written again, and executed by the stock runtime both ways."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import graph_from_proto, read_model
from stock_runtime import run

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
OWN = Path(__file__).parent.parent / "models"
LARGE = (
    *("light_vgg19", "light_bvlc_alexnet", "light_zfnet512"),
    *("light_densenet121", "light_inception_v2", "light_resnet50"),
)
ALL = [
    pytest.param(path, id=path.stem, marks=pytest.mark.slow if path.stem in LARGE else ())
    for path in (*sorted(OWN.glob("*.onnx")), *sorted(LIGHT.glob("*.onnx")))
]


def feeds_of(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    feeds = {}
    for tensor in (graph.tensors[name] for name in graph.inputs):
        drawn = rng.standard_normal(tensor.shape) if tensor.dtype.is_float else rng.integers(0, 2, tensor.shape)
        feeds[tensor.name] = np.asarray(drawn, tensor.dtype.array_dtype)
    return feeds


def same(left: Graph, right: Graph) -> bool:
    """Equality of graphs; that of the dataclass stumbles over arrays."""

    def equal(one: object, other: object) -> bool:
        return np.array_equal(one, other, equal_nan=True) if isinstance(one, np.ndarray) else one is other  # type: ignore[arg-type]

    plain = ("name", "ops", "inputs", "outputs", "folded", "state", "opset")
    return (
        all(getattr(left, field) == getattr(right, field) for field in plain)
        and dict(left.tensors) == dict(right.tensors)
        and dict(left.notes) == dict(right.notes)
        and all(
            one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
            for one, other in ((left.constants, right.constants), (left.initial, right.initial))
        )
    )


def test_all_models_are_here() -> None:
    assert len(ALL) >= 15


@pytest.mark.parametrize("path", ALL)
def test_written_and_read_again_it_is_the_same_graph(path: Path) -> None:
    graph = read_model(path)
    model = to_model(graph)
    assert same(graph_from_proto(model), graph)
    assert model.ir_version == 10
    described = {value.name for value in (*model.graph.value_info, *model.graph.input, *model.graph.output)}
    assert described | {tensor.name for tensor in model.graph.initializer} == set(graph.tensors)


@pytest.mark.parametrize("path", ALL)
def test_runs_like_the_file_it_was_read_from(path: Path) -> None:
    graph = read_model(path)
    model = to_model(graph)
    onnx.checker.check_model(model, full_check=True)
    feeds = feeds_of(graph)
    expected = run(path.read_bytes(), feeds)
    assert expected
    for ours, theirs in zip(run(model, feeds).values(), expected.values(), strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6 * float(np.max(np.abs(theirs))))


def test_resnet50_raw_is_folded_to_its_layers(models: Path) -> None:
    graph = read_model(models / "resnet50.raw.onnx")
    assert Counter(op.op_type for op in graph.ops) == {
        "Conv": 53,
        "BatchNormalization": 53,
        "Relu": 49,
        "Add": 16,
        "MaxPool": 1,
        "ReduceMean": 1,
        "Reshape": 1,
        "Gemm": 1,
    }
    biases = [op.inputs[2] for op in graph.ops if op.op_type == "Conv"]
    assert set(biases) <= graph.folded
    assert all(not np.any(graph.constants[name]) for name in biases)
    assert not any(name.startswith("m.resnet") for name in graph.folded)
    assert graph.tensors["linear"].shape == (2, 10)


def test_bert_raw_keeps_its_weights_out_of_folding(models: Path) -> None:
    graph = read_model(models / "bert.raw.onnx")
    weights = {tensor.name for tensor in onnx.load(models / "bert.raw.onnx").graph.initializer if tensor.data_type == 1}
    assert weights
    assert weights <= graph.constants.keys()
    assert not weights & graph.folded
    assert not {"Identity", "Shape", "Constant", "CastLike", "Range"} & {op.op_type for op in graph.ops}


def test_bert_step_pairs_all_parameters(models: Path) -> None:
    graph = read_model(models / "bert_step.onnx")
    parameters = graph.inputs[2:]
    assert [(pair.current, pair.following) for pair in graph.state] == list(
        zip(parameters, graph.outputs[1:], strict=True)
    )
    assert len(graph.state) == 41


def test_bert_step_computes_what_the_framework_did(models: Path) -> None:
    graph = read_model(models / "bert_step.onnx")
    oracle = np.load(models / "bert_oracle.npz")
    made = run(to_model(graph), {name: oracle[f"in_{name}"] for name in graph.inputs})
    assert len(made) == len([name for name in oracle.files if name.startswith("out_")]) > 0
    for index, value in enumerate(made.values()):
        wanted = oracle[f"out_{index}"]
        assert np.max(np.abs(value - wanted)) <= 1e-5 * np.max(np.abs(wanted))


@pytest.mark.parametrize("name", ["mlp_grads_core.onnx", "cnn_bn_grads_core.onnx"])
def test_gradients_are_no_next_state(models: Path, name: str) -> None:
    assert read_model(models / name).state == ()


def test_architectures_without_weights_have_fills_for_weights() -> None:
    graph = read_model(LIGHT / "light_densenet121.onnx")
    conv = next(op for op in graph.ops if op.op_type == "Conv")
    weight = graph.constants[conv.inputs[1]]
    assert conv.inputs[1] not in graph.folded
    assert weight is not None
    assert weight.strides == (0, 0, 0, 0)
    assert np.all(weight == np.float32(0.02))
    assert graph.opset == 21
