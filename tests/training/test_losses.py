"""Losses against their formulas and against float64 differences."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from drawn import random
from planner.errors import UnsupportedError, UsageError
from planner.graph.files.to_onnx import to_model
from planner.options.training import LabelOptions
from planner.runtime.values.state import check_inputs
from planner.training.build import build_training_graph

node = helper.make_node


def log_softmax(y):
    return y - np.log(np.exp(y).sum(1, keepdims=True))


def cross_entropy(log_p, labels, weights, ignore):
    rows = np.moveaxis(log_p, 1, -1).reshape(-1, log_p.shape[1])
    flat = labels.reshape(-1)
    kept = np.flatnonzero(flat != ignore) if ignore is not None else np.arange(flat.size)
    w = weights[flat[kept]]
    return -(w * rows[kept, flat[kept]]).sum() / w.sum()


@pytest.mark.parametrize("loss", ["softmax_cross_entropy", "nll"])
@pytest.mark.parametrize("shape", [(5, 4), (3, 4, 2), (2, 4, 2, 3)])
@pytest.mark.parametrize("weights", [None, (0.5, 2.0, 1.0, 0.25)])
@pytest.mark.parametrize("ignore", [None, -100, 2])
def test_by_labels(loss, shape, weights, ignore, forward_model, reference, directions):
    forward = forward_model([node("Tanh", ["w"], ["y"])], {"w": random(shape)})
    options = LabelOptions(class_weights=weights, ignore_index=ignore, class_axis=1)
    step = build_training_graph(forward.graph(), loss=loss, optimizer="sgd", learning_rate=1.0, labels=options)
    labels = np.random.default_rng(0).integers(0, 4, (shape[0], *shape[2:]))
    if ignore is not None:
        labels.flat[:2] = ignore
    found = reference(to_model(step), {"labels": labels})

    def of(parameters):
        y = np.tanh(parameters["w"])
        log_p = log_softmax(y) if loss == "softmax_cross_entropy" else y
        return cross_entropy(log_p, labels, np.ones(4) if weights is None else np.array(weights), ignore)

    assert found["loss"] == pytest.approx(of(forward.parameters), rel=1e-9)
    directions(of, forward.parameters, {"w": forward.parameters["w"] - found["w.next"]})


@pytest.mark.parametrize("ignore", [None, -100])
@pytest.mark.parametrize("shape", [(5, 4), (2, 4, 3)])
def test_labels_are_looked_up(shape, ignore, forward_model):
    """Only the softmax and its gradient are as large as the logits: no one-hot form of the labels."""
    forward = forward_model([node("Tanh", ["w"], ["y"])], {"w": random(shape)})
    options = LabelOptions(ignore_index=ignore, class_axis=1)
    step = build_training_graph(
        forward.graph(), loss="softmax_cross_entropy", optimizer="sgd", learning_rate=1.0, labels=options
    )
    of_loss = [op for op in step.ops if "loss" in op.name or op.outputs[0] == "y.grad"]
    large = [op.op_type for op in of_loss if step.tensors[op.outputs[0]].shape == shape]
    assert large == ["LogSoftmax", "Exp", "ScatterElements", "Mul"]


@pytest.mark.parametrize("loss", ["mse", "l1", "bce_with_logits"])
def test_by_element(loss, forward_model, reference, directions):
    forward = forward_model([node("Tanh", ["w"], ["y"])], {"w": random((3, 4))})
    step = build_training_graph(forward.graph(), loss=loss, optimizer="sgd", learning_rate=1.0)
    target = abs(np.tanh(random((3, 4), 5)))
    found = reference(to_model(step), {"target": target})

    def of(parameters):
        y = np.tanh(parameters["w"])
        p = 1 / (1 + np.exp(-y))
        values = {
            "mse": (y - target) ** 2,
            "l1": abs(y - target),
            "bce_with_logits": -(target * np.log(p) + (1 - target) * np.log(1 - p)),
        }
        return float(values[loss].mean())

    assert found["loss"] == pytest.approx(of(forward.parameters), rel=1e-9)
    directions(of, forward.parameters, {"w": forward.parameters["w"] - found["w.next"]})


@pytest.mark.parametrize(("shape", "own"), [((), "own"), ((1,), "own"), ((), "loss")])
def test_an_output_that_is_the_loss(shape, own, forward_model, reference, directions):
    nodes = [node("Exp", ["w"], ["e"]), node("ReduceSum", ["e"], ["s"], keepdims=0),
             node("Reshape", ["s", "shape"], [own]), node("Tanh", ["w"], ["y"])]  # fmt: skip
    constants = {"shape": np.array(shape, np.int64)}
    forward = forward_model(nodes, {"w": random((3, 4))}, constants=constants, outputs=["y", own])
    step = build_training_graph(forward.graph(), loss=f"output:{own}", optimizer="sgd", learning_rate=1.0)
    assert step.inputs == ("learning_rate", "w")
    assert step.outputs == tuple(dict.fromkeys(("loss", "y", own, "w.next")))
    found = reference(to_model(step), {})
    directions(
        lambda parameters: float(np.exp(parameters["w"]).sum()), forward.parameters,
        {"w": forward.parameters["w"] - found["w.next"]},
    )  # fmt: skip


@pytest.mark.parametrize("wished", ["loss", "y", "total "])
def test_the_one_scalar_output_is_offered(wished, forward_model):
    nodes = [node("Tanh", ["w"], ["y"]), node("ReduceSum", ["y"], ["total"], keepdims=0)]
    forward = forward_model(nodes, {"w": random((3, 4))}, outputs=["y", "total"]).graph()
    with pytest.raises(UsageError) as raised:
        build_training_graph(forward, loss=f"output:{wished}", optimizer="sgd", learning_rate=1.0)
    assert raised.value.hint == "its one scalar output: --loss output:total"


def test_of_several_scalar_outputs_the_nearest_name_is_offered(forward_model):
    nodes = [node("ReduceSum", ["w"], ["total"], keepdims=0), node("ReduceMax", ["w"], ["most"], keepdims=0)]
    forward = forward_model(nodes, {"w": random((3, 4))}, outputs=["most", "total"]).graph()
    with pytest.raises(UsageError) as raised:
        build_training_graph(forward, loss="output:totals", optimizer="sgd", learning_rate=1.0)
    assert raised.value.hint == "did you mean 'total'?"


def test_refused(forward_model):
    forward = forward_model([node("Tanh", ["w"], ["y"])], {"w": random((3, 4))}).graph()
    settings = {"optimizer": "sgd", "learning_rate": 1.0}
    with pytest.raises(UsageError, match="3 class weights for 4 classes") as raised:
        build_training_graph(forward, loss="nll", labels=LabelOptions(class_weights=(1.0, 1.0, 1.0)), **settings)
    assert raised.value.hint == "write --class-weights with 4 numbers, for the classes from 0 to 3"
    with pytest.raises(UsageError, match=r"'mse' has no labels, so it takes no --ignore-index\n") as raised:
        build_training_graph(forward, loss="mse", labels=LabelOptions(ignore_index=3), **settings)
    assert "--loss softmax_cross_entropy" in raised.value.hint
    with pytest.raises(UsageError, match="takes nothing that is said of labels: --class-axis, --shift"):
        build_training_graph(forward, loss="output:y", labels=LabelOptions(class_axis=0, shift=True), **settings)
    with pytest.raises(UnsupportedError, match=r"takes a float of one element; output 'y' is \[3, 4\]"):
        build_training_graph(forward, loss="output:y", **settings)
    with pytest.raises(UsageError, match="no output 'Y'") as raised:
        build_training_graph(forward, loss="output:Y", **settings)
    assert raised.value.hint == "did you mean 'y'?"


OWN_LOSSES = {
    "its own loss": ([node("SoftmaxCrossEntropyLoss", ["y", "t"], ["l"], ignore_index=-100)], -100),
    "of probabilities": (
        [node("LogSoftmax", ["y"], ["p"], axis=1), node("NegativeLogLikelihoodLoss", ["p", "t"], ["l"])], None
    ),
    "one-hot": (
        [node("Cast", ["t"], ["i"], to=6), node("OneHot", ["i", "depth", "bits"], ["o"]),
         node("LogSoftmax", ["y"], ["p"]), node("Mul", ["o", "p"], ["q"]),
         node("ReduceSum", ["q"], ["l"], keepdims=0)], None
    ),
    "compared": (
        [node("Unsqueeze", ["t", "last"], ["i"]), node("Equal", ["classes", "i"], ["e"]),
         node("Cast", ["e"], ["o"], to=11), node("Softmax", ["y"], ["p"]), node("Sub", ["o", "p"], ["q"]),
         node("ReduceSumSquare", ["q"], ["l"], keepdims=0)], None
    ),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "ignored"), OWN_LOSSES.values(), ids=OWN_LOSSES)
def test_labels_of_a_loss_of_the_models_own_are_its_classes(nodes, ignored, forward_model):
    """What picks no class would train nothing: it is refused with its input, its value and the range, before a step."""
    constants = {
        "depth": np.array(5), "bits": np.array([0.0, 1.0]), "last": np.array([1]), "classes": np.arange(5)
    }  # fmt: skip
    read = {name for one in nodes for name in one.input}
    forward = forward_model(
        [node("MatMul", ["x", "w"], ["y"]), *nodes], {"w": random((4, 5), 1)},
        {"x": random((6, 4), 2), "t": np.arange(6) % 5}, {name: constants[name] for name in constants if name in read},
        ("l",),
    )  # fmt: skip
    step = build_training_graph(
        forward.graph(), loss="output:l", optimizer="sgd", learning_rate=0.1, parameters=forward.trained()
    )
    good = {"t": np.array([0, 4, 1, 2, 3, 0])}
    assert check_inputs(step, good, source="data").keys() == good.keys()
    for label in (5, -1, -100, 1 << 40):
        given = {"t": np.array([0, 4, 1, 2, 3, label])}
        if label == ignored:
            assert check_inputs(step, given, source="data")
            continue
        beside = "" if ignored is None else f" and the ignored {ignored}"
        with pytest.raises(UsageError, match="does not fit the model") as caught:
            check_inputs(step, given, source="data")
        fault = f"t: 1 of 6 labels are no class, the first of them {label}: classes are 0 to 4{beside}"
        assert caught.value.facts == (fault,)
