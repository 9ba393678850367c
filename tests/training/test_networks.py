"""Whole networks: a small CNN in float64 against finite differences, and real models in ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import read_model
from planner.training.batch.change import with_batch
from planner.training.build import build_training_graph
from stock_runtime import run, session

MODELS = Path(__file__).parent.parent / "models"
node = helper.make_node


def random(shape, seed=1, scale=0.5):
    return scale * np.random.default_rng(seed).standard_normal(shape)


def small_cnn(forward_model):
    """Every operator type of ResNet, and other pooling, grouped convolution and activations besides."""
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("BatchNormalization", ["c1", "s1", "o1", "m1", "v1"], ["n1"], epsilon=1e-3),
        node("Relu", ["n1"], ["r1"]),
        node("MaxPool", ["r1"], ["p1"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", ["p1", "w2"], ["c2"], pads=[1, 1, 1, 1], group=2),
        node("BatchNormalization", ["c2", "s2", "o2", "m2", "v2"], ["n2"]),
        node("Conv", ["p1", "w3"], ["c3"]),
        node("Add", ["n2", "c3"], ["a"]),
        node("LeakyRelu", ["a"], ["r2"]),
        node("Conv", ["r2", "w4"], ["c4"], dilations=[2, 2], pads=[1, 0, 1, 2]),
        node("AveragePool", ["c4"], ["p2"], kernel_shape=[2, 2], pads=[0, 0, 1, 1]),
        node("Sigmoid", ["p2"], ["g"]),
        node("Mul", ["g", "p2"], ["swish"]),
        node("ReduceMean", ["swish", "axes"], ["mean"], keepdims=1),
        node("Reshape", ["mean", "shape"], ["flat"]),
        node("Gemm", ["flat", "w5", "b5"], ["y"], transB=1),
    ]
    parameters = {
        "w1": random((4, 3, 3, 3), 1), "b1": random((4,), 2), "s1": 1 + random((4,), 3), "o1": random((4,), 4),
        "w2": random((4, 2, 3, 3), 5), "s2": 1 + random((4,), 6), "o2": random((4,), 7), "w3": random((4, 4, 1, 1), 8),
        "w4": random((6, 4, 2, 2), 9), "w5": random((5, 6), 10), "b5": random((5,), 11),
    }  # fmt: skip
    constants = {
        "m1": random((4,), 12), "v1": 1 + abs(random((4,), 13)),
        "m2": random((4,), 14), "v2": 1 + abs(random((4,), 15)),
        "axes": np.array([-1, -2]), "shape": np.array([4, -1]),
    }  # fmt: skip
    return forward_model(nodes, parameters, {"x": random((4, 3, 12, 12), 16, 1.0)}, constants)


@pytest.mark.parametrize("batchnorm", ["train", "frozen"])
def test_gradients_of_a_small_cnn(batchnorm, forward_model, reference, directions):
    forward = small_cnn(forward_model)
    step = build_training_graph(
        forward.graph(), loss="softmax_cross_entropy", optimizer="sgd", learning_rate=1.0, batchnorm=batchnorm
    )
    model = to_model(step)
    onnx.checker.check_model(model, full_check=True)
    feeds = {**forward.data, "labels": np.array([0, 3, 4, 1])}
    found = reference(model, feeds)
    gradients = {name: value - found[f"{name}.next"] for name, value in forward.parameters.items()}
    directions(
        lambda parameters: float(reference(model, {**feeds, **parameters})["loss"]), forward.parameters, gradients
    )
    if batchnorm == "frozen":
        np.testing.assert_allclose(found["y"], reference(forward.model(), forward.data)["y"])


def test_the_runtime_computes_what_the_reference_does(forward_model, reference):
    """The small CNN's step in float32 by ONNX Runtime, against the same step in float64."""
    options = {"loss": "softmax_cross_entropy", "optimizer": "sgd", "learning_rate": 1.0}
    forward = small_cnn(forward_model)
    labels = {"labels": np.array([0, 3, 4, 1])}
    expected = reference(to_model(build_training_graph(forward.graph(), **options)), {**forward.data, **labels})
    parameters, data, constants = (
        {name: value.astype(np.float32) if value.dtype == np.float64 else value for name, value in values.items()}
        for values in (forward.parameters, forward.data, forward.constants)
    )
    step = build_training_graph(forward_model(forward.nodes, parameters, data, constants).graph(), **options)
    found = run(step, {**data, **labels})
    assert expected.keys() == found.keys() != set()
    for name, value in expected.items():
        assert np.abs(found[name] - value).max() <= 1e-5 * np.abs(value).max(), name


def losses(step, feeds, steps=5):
    """The losses of some steps, each from the state that the one before left."""
    runner = session(step)
    feeds = {**step.initial, **feeds}
    found = []
    for _ in range(steps):
        outputs = dict(zip(step.outputs, runner.run(None, feeds), strict=True))
        feeds.update((pair.current, outputs[pair.following]) for pair in step.state)
        found.append(float(outputs["loss"]))
    return found


def test_resnet50_trains():
    forward = read_model(MODELS / "resnet50.raw.onnx")
    step = build_training_graph(
        forward, loss="softmax_cross_entropy", optimizer="momentum", learning_rate=0.05, batch=8
    )
    onnx.checker.check_model(to_model(step), full_check=True)
    assert not any(op.attribute("training_mode") for op in step.ops)
    assert len(step.state) == 2 * 161 + 106
    assert len(step.ops) < 3000
    scattering = [op for op in step.ops if op.op_type == "ConvTranspose"]
    assert any(op.attribute("output_padding") for op in scattering)
    assert all(op.attribute("pads", (0, 0, 0, 0))[:2] == op.attribute("pads", (0, 0, 0, 0))[2:] for op in scattering)
    rng = np.random.default_rng(0)
    x = rng.standard_normal(step.tensors["a_0"].shape).astype(np.float32)
    found = losses(step, {"a_0": x, "labels": rng.integers(0, 10, 8)})
    assert found[-1] < 0.8 * found[0]


def test_resnet50_at_another_batch_is_the_same_model():
    forward = read_model(MODELS / "resnet50.raw.onnx")
    x = np.random.default_rng(0).standard_normal((8, 3, 64, 64)).astype(np.float32)
    (whole,) = session(with_batch(forward, 8)).run(None, {"a_0": x})
    old = session(forward)
    parts = np.concatenate([old.run(None, {"a_0": x[start : start + 2]})[0] for start in range(0, 8, 2)])
    np.testing.assert_allclose(whole, parts, atol=1e-5 * abs(parts).max())


def test_bert_trains():
    forward = read_model(MODELS / "bert.raw.onnx")
    step = build_training_graph(forward, loss="softmax_cross_entropy", optimizer="sgd", learning_rate=0.05)
    onnx.checker.check_model(to_model(step), full_check=True)
    rng = np.random.default_rng(0)
    tokens, mask = rng.integers(0, 256, (2, 16)), np.ones((2, 16), np.int64)
    found = losses(step, {"a_0": tokens, "a_1": mask, "labels": np.array([0, 1])})
    assert found[-1] < found[0]


def test_bert_at_another_batch_is_the_same_model():
    """Its mask and its token types are picked by constants that count the samples."""
    forward = read_model(MODELS / "bert.raw.onnx")
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 256, (6, 16))
    mask = (np.arange(16) < rng.integers(4, 17, (6, 1))).astype(np.int64)
    (whole,) = session(with_batch(forward, 6)).run(None, {"a_0": tokens, "a_1": mask})
    old = session(forward)
    parts = [
        old.run(None, {"a_0": tokens[start : start + 2], "a_1": mask[start : start + 2]})[0] for start in (0, 2, 4)
    ]
    np.testing.assert_allclose(whole, np.concatenate(parts), atol=1e-5 * abs(whole).max())
