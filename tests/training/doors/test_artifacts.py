"""Artifacts of onnxruntime-training beside what its own runtime computes; see tests/tools/ort_artifacts.py."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest

import stock_runtime
from fast_suite import chosen
from planner import api
from planner.graph.decompositions.registry import Purpose, decompositions
from planner.graph.reading.load import load_model
from planner.options.training import TrainingOptions
from planner.training.doors.artifacts import read_gradients
from planner.training.doors.make import make

MODELS = Path(__file__).parents[2] / "models"
NAMES = ["cnn", "lstm", "transformer"]


def folder_of(name):
    return MODELS / f"ort_training_{name}"


def oracle(name):
    folder = folder_of(name)
    return dict(np.load(folder / "oracle_feed.npz")), dict(np.load(folder / "oracle_grads.npz"))


def assert_close(found, expected, name, floor):
    """Within 1e-5 of the largest element; what is zero but for rounding (a key's bias) within 1e-7 of all gradients."""
    assert np.abs(found - expected).max() <= max(1e-5 * np.abs(expected).max(), 1e-7 * floor), name


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_the_training_runtime(name):
    read = read_gradients(load_model(folder_of(name) / "training_model.onnx"))
    assert {op.domain for op in read.graph.ops} == {""}
    feeds, expected = oracle(name)
    found = stock_runtime.run(read.graph, {key: feeds[key] for key in read.graph.inputs})
    found["loss"] = found[read.graph.outputs[0]]
    gradients = {key: value for key, value in expected.items() if key.endswith("_grad")}
    assert {gradient for _, gradient in read.pairs} == set(gradients)
    floor = max(np.abs(value).max() for value in gradients.values())
    for key, value in expected.items():
        assert_close(found[key], value, key, floor)


with np.load(MODELS / "ort_training_operators.npz") as held:
    OPERATORS = dict(held)


@pytest.mark.parametrize("name", sorted(key.removesuffix("/model") for key in OPERATORS if key.endswith("/model")))
def test_gradient_operators_one_by_one(name):
    """See tests/tools/ort_operators.py."""
    read = read_gradients(onnx.load_from_string(OPERATORS[f"{name}/model"].tobytes()))
    assert {op.domain for op in read.graph.ops} <= {""}
    values, feeds, at = OPERATORS[f"{name}/values"], {}, 0

    def following(tensor):
        nonlocal at
        at += tensor.elements
        return values[at - tensor.elements : at].reshape(tensor.shape)

    for key in read.graph.inputs:
        feeds[key] = following(read.graph.tensors[key])
    found = stock_runtime.run(read.graph, feeds)
    for parameter, gradient in read.pairs:
        expected = following(read.graph.tensors[parameter])
        assert np.abs(expected).max() > 1e-3
        assert_close(found[gradient], expected, gradient, 0.0)
    assert at == values.size


def test_every_gradient_operator_that_it_emits_is_shown():
    """What its build for the CPU has kernels of; its files hold no other operators of these names."""
    models = [load_model(folder_of(name) / "training_model.onnx") for name in NAMES]
    models += [onnx.load_from_string(value.tobytes()) for key, value in OPERATORS.items() if key.endswith("/model")]
    shown = {node.op_type for model in models for node in model.graph.node}
    for_other_devices = {"BitmaskDropoutGrad", "ConvTransposeGrad", "InvertibleLayerNormalizationGrad", "ResizeGrad"}
    unused = {"DropoutGrad", "LogSoftmaxGrad", "SoftmaxGrad", "SoftmaxCrossEntropyLossInternalGrad"}
    named = {name.rpartition(".")[2] for name in decompositions(Purpose.ARTIFACTS)}
    gradients = {name for name in named if "Grad" in name and name not in ("BroadcastGradientArgs", "ZeroGradient")}
    assert gradients - shown == for_other_devices | unused


def test_running_statistics_are_state():
    """The training runtime writes them in place, so that no output of the model tells."""
    feeds, expected = oracle("cnn")
    made = make(folder_of("cnn"), TrainingOptions(optimizer="sgd"))
    pairs = {pair.current: pair.following for pair in made.graph.state if "running" in pair.current}
    assert set(pairs) == {key.removesuffix(".next") for key in expected if key.endswith(".next")}
    assert len(pairs) == 4
    found = stock_runtime.run(made.graph, {key: feeds[key] for key in made.graph.inputs if key in feeds})
    for current, following in pairs.items():
        np.testing.assert_allclose(found[following], expected[f"{current}.next"], rtol=1e-5, err_msg=current)
        assert np.abs(found[following] - feeds[current]).max() > 1e-3


@pytest.mark.parametrize(
    ("name", "workers"), chosen(product(["cnn", "transformer", "lstm"], [2, 4]), fast=[("cnn", 2)])
)
def test_planned_run_and_verified(name, workers, tmp_path):
    step, folder = tmp_path / "train.onnx", tmp_path / "plan"
    api.grad(folder_of(name), output=step)
    api.plan(step, gpus=workers, out=folder, effort="quick")
    outcome = api.run(folder, steps=2, verify=True, inputs=folder_of(name) / "oracle_feed.npz")
    assert outcome.verified
    assert outcome.moved_bytes == outcome.predicted_bytes
