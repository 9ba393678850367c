"""Gradient-only graphs and onnxruntime-training's artifacts; files of pairs; which door a file is for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import stock_runtime
from planner.errors import UnsupportedError, UsageError
from planner.graph.files.to_onnx import to_model, write_model
from planner.graph.reading.from_onnx import graph_from_proto, read_model
from planner.graph.reading.load import load_model
from planner.options.training import TrainingOptions
from planner.training.doors.artifacts import read_gradients, read_optimizer
from planner.training.doors.gradients import infer_pairs, with_optimizer
from planner.training.doors.make import make, settings_of
from planner.training.doors.pairs import read_pairs
from planner.training.doors.read import open_training
from planner.training.update.updates import Schedule

MODELS = Path(__file__).parents[2] / "models"
ARTIFACTS = MODELS / "ort_training_mlp"
node = helper.make_node


def run(graph, feeds):
    """What the optimizer remembers begins with zeros; where the parameter has no value in the file, nor has that."""
    zeros = {name: np.zeros(graph.tensors[name].shape, np.float32)
             for name, value in graph.initial.items() if value is None}  # fmt: skip
    return stock_runtime.run(graph, {**zeros, **feeds})


def oracle():
    weights = {proto.name: numpy_helper.to_array(proto)
               for proto in onnx.load(ARTIFACTS / "forward.onnx").graph.initializer}  # fmt: skip
    return weights, dict(np.load(ARTIFACTS / "oracle_feed.npz")), dict(np.load(ARTIFACTS / "oracle_grads.npz"))


def test_the_lowered_artifact_gives_the_gradients_of_the_oracle():
    read = read_gradients(load_model(ARTIFACTS / "training_model.onnx"))
    graph, pairs = read.graph, read.pairs
    assert {op.domain for op in graph.ops} == {""}
    weights, feeds, expected = oracle()
    assert [parameter for parameter, _ in pairs] == list(weights)
    found = run(graph, {**weights, **feeds})
    found["loss"] = found[graph.outputs[0]]
    for name, value in expected.items():
        assert np.abs(found[name] - value).max() <= 1e-6 * np.abs(value).max(), name


def test_the_optimizer_is_joined_on():
    stated = read_optimizer(ARTIFACTS / "optimizer_model.onnx")
    assert (stated.name, stated.hyper.beta1, stated.hyper.beta2, stated.hyper.epsilon) == (
        "adamw_after", 0.9, 0.999, 1e-6,
    )  # fmt: skip
    made = make(ARTIFACTS, TrainingOptions(lr=0.01))
    assert made.optimizer == "adamw_after"
    weights, feeds, expected = oracle()
    found = run(made.graph, {**weights, **feeds})
    for name, value in weights.items():
        g = expected[f"{name}_grad"]
        v, h = 0.1 * g, 0.001 * g * g
        rate = 0.01 * np.sqrt(0.001) / 0.1
        np.testing.assert_allclose(
            found[f"{name}.next"], value - rate * v / (np.sqrt(h) + 1e-6), rtol=1e-3, atol=1e-4, err_msg=name
        )


def test_another_optimizer_may_be_asked_for():
    made = make(ARTIFACTS, TrainingOptions(optimizer="sgd"))
    assert {pair.current for pair in made.graph.state} == {"w0", "b0", "w1", "b1", "w2", "b2"}


@pytest.mark.parametrize("name", ["mlp_grads_core", "cnn_bn_grads_core"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_gradients_of_a_framework(name, optimizer):
    """An SGD step of the whole graph is the parameter less rate times gradient."""
    graph = read_model(MODELS / f"{name}.onnx")
    step = with_optimizer(graph, None, optimizer=optimizer, learning_rate=0.1, schedule=Schedule(clip_norm=100.0))
    onnx.checker.check_model(to_model(step), full_check=True)
    pairs = infer_pairs(graph)
    assert len(pairs) == len(graph.outputs) - 1
    rng = np.random.default_rng(0)
    feeds = {}
    for key in graph.inputs:
        tensor = graph.tensors[key]
        feeds[key] = (0.1 * rng.standard_normal(tensor.shape)).astype(np.float32) if tensor.dtype.is_float else (
            rng.integers(0, 10, tensor.shape))  # fmt: skip
    found, gradients = run(step, feeds), run(graph, feeds)
    if optimizer == "sgd":
        for parameter, gradient in pairs:
            expected = feeds[parameter] - np.float32(0.1) * gradients[gradient]
            np.testing.assert_allclose(found[f"{parameter}.next"], expected, atol=1e-6)


def gradients_model(names, shapes, gradient_shapes, outputs=None):
    outputs = outputs or [f"o{index}" for index in range(len(gradient_shapes))]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
              for name, shape in zip(names, shapes, strict=True)]  # fmt: skip
    made, nodes = [], [node("ReduceSum", [names[0]], ["loss"], keepdims=0)]
    for output, shape in zip(outputs, gradient_shapes, strict=True):
        source = next(name for name, own in zip(names, shapes, strict=True) if own == shape)
        nodes.append(node("Exp", [source], [output]))
        made.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, shape))
    loss = helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])
    graph = helper.make_graph(nodes, "g", inputs, [loss, *made])
    return graph_from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))


def test_pairs_by_shape_and_order():
    graph = gradients_model("xwbv", [[2, 3], [3, 4], [4], [3, 4]], [[3, 4], [4], [3, 4]])
    assert infer_pairs(graph) == (("w", "o0"), ("b", "o1"), ("v", "o2"))


def test_pairs_by_name():
    graph = gradients_model("xwv", [[3, 4], [3, 4], [3, 4]], [[3, 4], [3, 4]], ["v_grad", "w.grad"])
    assert infer_pairs(graph) == (("v", "v_grad"), ("w", "w.grad"))


def test_ambiguous_pairs_are_refused_with_the_candidates(tmp_path):
    graph = gradients_model("xwv", [[3, 4], [3, 4], [3, 4]], [[3, 4], [3, 4]])
    with pytest.raises(UsageError, match="which parameters 2 gradients belong to cannot be told") as error:
        infer_pairs(graph)
    assert error.value.facts == ("'o0' [3, 4]: x, w, v", "'o1' [3, 4]: x, w, v")
    file, pairs = tmp_path / "g.onnx", tmp_path / "pairs.yaml"
    write_model(graph, file)
    pairs.write_text("w: o0\nv: o1\n")
    made = make(file, TrainingOptions(optimizer="sgd", gradients=pairs))
    assert [pair.current for pair in made.graph.state] == ["w", "v"]


def test_pairs_that_cannot_be():
    graph = gradients_model("xw", [[2, 3], [3, 4]], [[3, 4]])
    with pytest.raises(UsageError) as error:
        with_optimizer(graph, [("q", "o0"), ("x", "o0")], optimizer="sgd", learning_rate=0.1)
    assert error.value.facts == (
        "'q' is no input and no initializer of the model", "'x' is [2, 3], but 'o0' is [3, 4]", "'o0' is in two pairs",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[a, b]", "must be a mapping"),
        ("a: b\na: c", "'a' is there twice"),
        ("a: [b]", "only plain names"),
        ("a: &x b\nc: *x", "only plain names"),
        ("a: !!python/object b", "only plain names"),
        ("a: b\n---\nc: d", "more than one"),
        ("a: {", "not YAML"),
        ("", "must be a mapping"),
    ],
)
def test_files_of_pairs_that_are_refused(text, says, tmp_path):
    file = tmp_path / "pairs.yaml"
    file.write_text(text)
    with pytest.raises(UsageError) as error:
        read_pairs(file)
    assert says in str(error.value)


def test_a_file_of_pairs(tmp_path):
    file = tmp_path / "pairs.yaml"
    file.write_text('# comment\nw: w.next\n"a:b": c\n1: 2\n')
    assert read_pairs(file) == (("w", "w.next"), ("a:b", "c"), ("1", "2"))
    with pytest.raises(UsageError, match="cannot be read"):
        read_pairs(tmp_path / "none.yaml")


def test_options_that_do_not_fit_the_door(tmp_path):
    with pytest.raises(UsageError, match="has its loss already"):
        make(ARTIFACTS, TrainingOptions(loss="mse", optimizer="sgd"))
    with pytest.raises(UsageError, match="batch, precision and dropout cannot be changed"):
        make(ARTIFACTS, TrainingOptions(optimizer="sgd"), batch=3)
    with pytest.raises(UsageError, match="with which optimizer") as raised:
        make(MODELS / "mlp_grads_core.onnx", TrainingOptions())
    assert "sgd, momentum" in raised.value.hint
    with pytest.raises(UnsupportedError, match="training step already"):
        make(MODELS / "bert_step.onnx", TrainingOptions(loss="mse", optimizer="sgd"))
    for name, value in {"lr": 0.01, "momentum": 0.8, "weight_decay": 0.2, "clip_norm": 1.0, "dropout": "off"}.items():
        with pytest.raises(UnsupportedError, match="training step already") as raised:
            make(MODELS / "bert_step.onnx", TrainingOptions(**{name: value}))
        assert f"leave --{name.replace('_', '-')} out" in raised.value.hint
    with pytest.raises(UnsupportedError, match="training step already"):
        make(MODELS / "bert_step.onnx", TrainingOptions(), batch=3)
    options = TrainingOptions(group=[])
    assert settings_of(options, make(MODELS / "bert_step.onnx", options))[0] == ("optimizer", "the model's own")
    assert open_training(ARTIFACTS).optimizer is not None
