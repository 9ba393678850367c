"""Gradient rules of normalisations, softmax and reductions."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from drawn import random
from planner.errors import UnsupportedError
from planner.graph.files.to_onnx import to_model
from planner.training.build import build_training_graph

node = helper.make_node
EPSILON = 1e-3


def batch_norm(forward_model, shape, **attributes):
    channels = shape[1]
    parameters = {"x": random(shape), "scale": random((channels,), 2), "bias": random((channels,), 3)}
    statistics = {"mean": random((channels,), 4), "variance": abs(random((channels,), 5)) + 0.5}
    names = [*parameters, *statistics]
    nodes = [node("BatchNormalization", names, ["y"], name="bn", epsilon=EPSILON, **attributes)]
    return forward_model(nodes, parameters, constants=statistics), statistics


@pytest.mark.parametrize("shape", [(4, 3), (3, 2, 4), (2, 3, 4, 3), (2, 3, 2, 2, 2)])
def test_batch_statistics(shape, check_gradients, forward_model):
    forward, _ = batch_norm(forward_model, shape)
    over = tuple(dim for dim in range(len(shape)) if dim != 1)
    column = (-1, *(1 for _ in shape[2:]))

    def loss(target):
        def of(parameters):
            x = parameters["x"]
            normal = (x - x.mean(over, keepdims=True)) / np.sqrt(x.var(over, keepdims=True) + EPSILON)
            y = normal * parameters["scale"].reshape(column) + parameters["bias"].reshape(column)
            return float(np.mean((y - target) ** 2))

        return of

    step = check_gradients(forward, loss=loss)
    norm = [op for op in step.ops if "loss" not in op.name and op.outputs[0] != "y.grad"]
    passes = [op.op_type for op in norm if step.tensors[op.outputs[0]].shape == shape]
    assert passes[:3] == ["Sub", "Mul", "BatchNormalization"], "of sums, and none in training mode"
    assert passes[3:7] == ["Mul", "BatchNormalization", "Sub", "Mul"]
    assert not any(op.attribute("training_mode") for op in step.ops)
    assert {pair.current for pair in step.state} == {"x", "scale", "bias", "mean", "variance"}


def test_running_statistics_follow_onnx(reference, forward_model):
    forward, statistics = batch_norm(forward_model, (3, 2, 4), momentum=0.8)
    step = build_training_graph(forward.graph(), loss="mse", optimizer="sgd", learning_rate=0.1)
    found = reference(to_model(step), {"target": random((3, 2, 4), 6)})
    x = forward.parameters["x"]
    np.testing.assert_allclose(found["mean.next"], 0.8 * statistics["mean"] + 0.2 * x.mean((0, 2)))
    np.testing.assert_allclose(found["variance.next"], 0.8 * statistics["variance"] + 0.2 * x.var((0, 2)))


def test_variance_of_a_large_mean_does_not_cancel(reference, forward_model):
    forward, _ = batch_norm(forward_model, (4, 2, 8))
    far = {**forward.parameters, "x": forward.parameters["x"].astype(np.float32) + np.float32(3000)}
    near = {name: value.astype(np.float32) for name, value in {**forward.parameters, "x": far["x"] - 3000}.items()}
    constants = {name: value.astype(np.float32) for name, value in forward.constants.items()}
    outputs = []
    for parameters in (far, near):
        parameters = {name: value.astype(np.float32) for name, value in parameters.items()}
        graph = forward_model(forward.nodes, parameters, constants=constants).graph()
        step = build_training_graph(graph, loss="mse", optimizer="sgd", learning_rate=0.1)
        outputs.append(reference(to_model(step), {"target": np.zeros((4, 2, 8), np.float32)})["y"])
    np.testing.assert_allclose(*outputs, atol=1e-3)


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 4, 3)])
def test_frozen_statistics(shape, check_gradients, forward_model):
    forward, _ = batch_norm(forward_model, shape)
    step = check_gradients(forward, batchnorm="frozen")
    assert {pair.current for pair in step.state} == {"x", "scale", "bias"}


def test_one_pair_of_statistics_for_two_ops(reference, forward_model):
    forward, statistics = batch_norm(forward_model, (3, 2, 4))
    again = node("BatchNormalization", ["y", "scale", "bias", "mean", "variance"], ["z"], epsilon=EPSILON)
    both = forward_model([*forward.nodes, again], forward.parameters, constants=statistics, outputs=["z"])
    step = build_training_graph(both.graph(), loss="mse", optimizer="sgd", learning_rate=0.1)
    found = reference(to_model(step), {"target": random((3, 2, 4), 6)})
    bias = forward.parameters["bias"]
    first = 0.9 * statistics["mean"] + 0.1 * forward.parameters["x"].mean((0, 2))
    np.testing.assert_allclose(found["mean.next"], 0.9 * first + 0.1 * bias)


def test_training_mode_contradicts_frozen(forward_model):
    forward, _ = batch_norm(forward_model, (3, 2, 4), training_mode=1)
    nodes = [node("BatchNormalization", list(forward.nodes[0].input), ["y", "m", "v"], name="bn", training_mode=1)]
    graph = forward_model(nodes, forward.parameters, constants=forward.constants).graph()
    with pytest.raises(UnsupportedError) as error:
        build_training_graph(graph, loss="mse", optimizer="sgd", learning_rate=0.1, batchnorm="frozen")
    assert "op 'bn'" in error.value.facts[0]


@pytest.mark.parametrize(("shape", "axis"), [((3, 4), -1), ((2, 3, 4), 1), ((2, 3, 4), -1), ((2, 3, 4), 0)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_layer_normalization(shape, axis, with_bias, check_gradients, forward_model):
    rows = shape[axis:]
    parameters = {"x": random(shape), "scale": random(rows, 2)}
    if with_bias:
        parameters["bias"] = random(rows, 3)
    nodes = [node("LayerNormalization", list(parameters), ["y"], axis=axis, epsilon=EPSILON)]

    def loss(target):
        def of(p):
            over = tuple(range(axis % len(shape), len(shape)))
            normal = p["x"] - p["x"].mean(over, keepdims=True)
            normal = normal / np.sqrt(p["x"].var(over, keepdims=True) + EPSILON)
            return float(np.mean((normal * p["scale"] + p.get("bias", 0) - target) ** 2))

        return of

    # Its mean and deviation are float32 by the operator's definition.
    check_gradients(forward_model(nodes, parameters), loss=loss, tolerance=1e-5)


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_softmax(op_type, axis, check_gradients, forward_model):
    attributes = {} if axis is None else {"axis": axis}
    check_gradients(forward_model([node(op_type, ["x"], ["y"], **attributes)], {"x": random((2, 3, 4))}))


@pytest.mark.parametrize("op_type", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("axes", [None, (1,), (0, -1)])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reductions(op_type, axes, keepdims, check_gradients, forward_model):
    constants = {} if axes is None else {"axes": np.array(axes, np.int64)}
    nodes = [node(op_type, ["x", *constants], ["y"], keepdims=keepdims)]
    check_gradients(forward_model(nodes, {"x": random((2, 3, 4))}, constants=constants))


@pytest.mark.parametrize("noop", [0, 1])
def test_reduction_over_no_axes(noop, check_gradients, forward_model):
    nodes = [node("ReduceSum", ["x", "axes"], ["y"], noop_with_empty_axes=noop)]
    check_gradients(forward_model(nodes, {"x": random((2, 3))}, constants={"axes": np.zeros(0, np.int64)}))


def test_axes_as_an_attribute(check_gradients, forward_model):
    nodes = [node("ReduceMean", ["x"], ["m"], axes=[-1], keepdims=1), node("ReduceMax", ["m"], ["y"], axes=[0])]
    step = check_gradients(forward_model(nodes, {"x": random((2, 3))}, opset=17))
    assert step.opset == 21


@pytest.mark.parametrize("is_trained", [False, True])
def test_ones_and_zeros_that_are_no_weights_take_no_pass(is_trained, check_gradients, forward_model):
    """So PyTorch's exporter writes GroupNorm; what a model begins with may be ones and zeros as well."""
    one, zero = np.ones(3), np.zeros(3)
    nodes = [node("InstanceNormalization", ["x", "scale", "bias"], ["y"])]
    if not is_trained:
        filled = [numpy_helper.from_array(np.array([value])) for value in (1.0, 0.0)]
        made = [
            node("ConstantOfShape", ["shape"], [name], value=value)
            for name, value in zip(["scale", "bias"], filled, strict=True)
        ]
        nodes = [*made, *nodes]
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 2))
    parameters = {"x": x, "scale": one, "bias": zero} if is_trained else {"x": x}
    step = check_gradients(forward_model(nodes, parameters, constants={"shape": np.array([3])}))
    assert ("bias.next" in step.outputs) == is_trained
    beside = [op for op in step.ops if any(step.tensors[name].shape == (3, 1, 1) for name in op.inputs)]
    assert bool(beside) == is_trained
