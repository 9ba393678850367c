"""The training graph as a whole: what it reads and makes, its names, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from types import ModuleType

import numpy as np
import onnx
import pytest
from onnx import helper

from drawn import random32 as random
from planner.errors import UnsupportedError, UsageError
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import graph_from_proto
from planner.options.training import LabelOptions
from planner.training.build import INPUTS, build_training_graph
from planner.training.gradients.autodiff import GradientRule, collect
from planner.training.rules import activations
from planner.training.update.optimizers import Hyper

node = helper.make_node


@pytest.fixture
def mlp(forward_model):
    def make(dtype=np.float32, outputs=("logits",)):
        nodes = [
            node("Gemm", ["x", "w1", "b1"], ["h"], name="first", transB=1),
            node("Relu", ["h"], ["r"], name="relu"),
            node("MatMul", ["r", "w2"], ["logits"], name="second"),
        ]
        parameters = {"w1": random((5, 4), 1, dtype), "b1": random((5,), 2, dtype), "w2": random((5, 3), 3, dtype)}
        return forward_model(nodes, parameters, {"x": random((6, 4), 4, dtype)}, outputs=outputs)

    return make


def built(forward, **options):
    settings = {"loss": "softmax_cross_entropy", "optimizer": "momentum", "learning_rate": 0.1, **options}
    return build_training_graph(forward.graph(), **settings)


def test_inputs_outputs_and_state(mlp):
    step = built(mlp())
    assert step.inputs[:3] == ("x", "labels", "learning_rate")
    assert step.inputs[3:6] == ("w1", "b1", "w2")
    assert set(step.inputs[6:]) == {"w1.momentum", "b1.momentum", "w2.momentum"}
    assert step.outputs[:2] == ("loss", "logits")
    assert all(pair.following == f"{pair.current}.next" for pair in step.state)
    assert step.outputs[2:] == tuple(pair.following for pair in step.state)
    assert step.opset == 21
    assert step.tensors["labels"].shape == (6,)
    assert step.tensors["loss"].shape == ()
    assert not step.initial["w1.momentum"].any()
    assert step.initial["learning_rate"] == np.float32(0.1)
    assert json.loads(step.notes[INPUTS]) == {
        "x": {"normal": True},
        "labels": {"integers_below": 3, "labels": True},
        "learning_rate": {"value": 0.1},
    }


def test_names_tell_where_tensors_come_from(mlp):
    step = built(mlp())
    for name in ("logits.grad", "r.grad", "h.grad", "w1.grad", "b1.grad", "w2.grad"):
        assert name in step.tensors
    assert len({op.name for op in step.ops}) == len(step.ops)
    assert "x.grad" not in step.tensors


def test_reads_back_as_the_same_graph(mlp):
    step = built(mlp())
    again = graph_from_proto(to_model(step))
    assert again.ops == step.ops
    assert again.tensors == step.tensors
    assert again.state == step.state
    assert again.notes == step.notes


def test_an_update_stands_before_the_rest_of_the_backward(mlp):
    step = built(mlp())
    position = {name: index for index, op in enumerate(step.ops) for name in op.outputs}
    assert position["w2.next"] < position["h.grad"]


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
@pytest.mark.parametrize("loss", ["softmax_cross_entropy", "mse"])
def test_steps_by_hand(optimizer, loss, mlp, reference):
    """Three steps of the MLP, written out in NumPy."""
    forward = mlp(np.float64)
    step = built(forward, optimizer=optimizer, loss=loss, hyper=Hyper(momentum=0.7))
    model = to_model(step)
    x, labels = forward.data["x"], np.array([0, 1, 2, 2, 1, 0])
    goal = random((6, 3), 9, np.float64)
    feeds = {"x": x, **({"target": goal} if loss == "mse" else {"labels": labels})}
    rate = float(np.float32(0.1))
    w = {name: value.copy() for name, value in forward.parameters.items()}
    v = {name: np.zeros_like(value) for name, value in w.items()}
    for _ in range(3):
        found = reference(model, feeds)
        h = x @ w["w1"].T + w["b1"]
        r = np.maximum(h, 0)
        logits = r @ w["w2"]
        if loss == "mse":
            value = np.mean((logits - goal) ** 2)
            dy = 2 * (logits - goal) / goal.size
        else:
            p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            value = -np.log(p[range(6), labels]).mean()
            dy = (p - np.eye(3)[labels]) / 6
        dh = (dy @ w["w2"].T) * (h > 0)
        gradients = {"w1": dh.T @ x, "b1": dh.sum(0), "w2": r.T @ dy}
        np.testing.assert_allclose(found["loss"], value, rtol=1e-12)
        for name, gradient in gradients.items():
            v[name] = gradient + (0.7 * v[name] if optimizer == "momentum" else 0)
            w[name] -= rate * v[name]
            np.testing.assert_allclose(found[f"{name}.next"], w[name], rtol=1e-9, atol=1e-12)
        feeds.update((pair.current, found[pair.following]) for pair in step.state)


def test_cross_entropy_over_positions(forward_model, reference, directions):
    """Logits [N, C, d]: labels [N, d], mean over all of them."""
    forward = forward_model([node("Tanh", ["w"], ["y"])], {"w": random((2, 3, 4), 1, np.float64)})
    step = built(forward, optimizer="sgd", learning_rate=1.0, labels=LabelOptions(class_axis=1))
    labels = np.random.default_rng(0).integers(0, 3, (2, 4))
    found = reference(to_model(step), {"labels": labels})

    def loss(parameters):
        y = np.tanh(parameters["w"])
        log_p = y - np.log(np.exp(y).sum(1, keepdims=True))
        return -float(np.take_along_axis(log_p, labels[:, None], 1).mean())

    assert found["loss"] == pytest.approx(loss(forward.parameters), rel=1e-12)
    directions(loss, forward.parameters, {"w": forward.parameters["w"] - found["w.next"]})


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_confident_logits_give_finite_gradients(forward_model, reference):
    forward = forward_model([node("Mul", ["w", "big"], ["y"])], {"w": np.eye(3, dtype=np.float32)},
                            constants={"big": np.array(1e30, np.float32)})  # fmt: skip
    options = {"optimizer": "sgd", "learning_rate": 1e-30, "parameters": forward.trained()}
    found = reference(to_model(built(forward, **options)), {"labels": np.arange(3)})
    assert all(np.isfinite(value).all() for value in found.values())


def test_folded_constants_and_scalars_are_not_trained(forward_model):
    nodes = [
        node("Constant", [], ["ones"], value_floats=[1.0, 1.0, 1.0]),
        node("Add", ["w", "ones"], ["a"]),
        node("Mul", ["a", "s"], ["y"]),
    ]
    forward = forward_model(nodes, {"w": random((2, 3))}, constants={"s": np.array(2.0, np.float32)})
    assert [pair.current for pair in built(forward, loss="mse", optimizer="sgd").state] == ["w"]


def test_parameters_that_the_loss_does_not_see_stay_constants(forward_model):
    nodes = [
        node("Add", ["w", "x"], ["y"]),
        node("ArgMax", ["u"], ["i"], axis=0, keepdims=0),
        node("Gather", ["w", "i"], ["z"]),
    ]
    forward = forward_model(nodes, {"w": random((3, 3)), "u": random((3,))}, {"x": random((3, 3))}, outputs=["y", "z"])
    step = built(forward, loss="mse", optimizer="sgd", output="y")
    assert [pair.current for pair in step.state] == ["w"]
    assert "u" in step.constants
    assert step.outputs == ("loss", "y", "z", "w.next")


def test_values_that_were_not_loaded_stay_away(mlp):
    forward = mlp().graph()
    absent: Graph = replace(forward, constants=dict.fromkeys(forward.constants))
    step = build_training_graph(absent, loss="mse", optimizer="momentum", learning_rate=0.1)
    assert step.initial["w1"] is None
    assert step.initial["w1.momentum"] is None
    assert json.loads(step.notes[INPUTS])["w1.momentum"] == {"value": 0.0}
    with_values = build_training_graph(forward, loss="mse", optimizer="momentum", learning_rate=0.1)
    assert step.ops == with_values.ops


def test_names_that_are_taken(forward_model, reference):
    """A model may have tensors called as ours are."""
    nodes = [node("Mul", ["loss", "labels"], ["w.grad"]), node("Exp", ["w.grad"], ["learning_rate"])]
    forward = forward_model(nodes, {"loss": random((2, 3))}, {"labels": random((2, 3))}, outputs=["learning_rate"])
    step = built(forward, parameters=forward.trained())
    onnx.checker.check_model(to_model(step), full_check=True)
    found = reference(to_model(step), {"labels": random((2, 3)), "labels.2": np.array([0, 2])})
    assert list(found) == ["loss.2", "learning_rate", "loss.next", "loss.momentum.next"]


def test_every_op_in_the_way_is_named(forward_model):
    nodes = [
        node("MaxRoiPool", ["w", "rois"], ["a"], name="one", pooled_shape=[6, 6]),
        node("Relu", ["a"], ["b"], name="fine"),
        node("AveragePool", ["b"], ["c"], name="two", kernel_shape=[1, 1], strides=[3, 3], auto_pad="SAME_UPPER"),
        node("MaxRoiPool", ["c", "rois"], ["y"], name="three", pooled_shape=[1, 1]),
        node("MaxRoiPool", ["c", "rois"], ["aside"], name="not in the way", pooled_shape=[1, 1]),
    ]
    constants = {"rois": np.array([[0, 0, 0, 3, 3]], np.float32)}
    forward = forward_model(nodes, {"w": random((1, 3, 4, 4))}, {}, constants, outputs=["y", "aside"])
    with pytest.raises(UnsupportedError) as error:
        built(forward, loss="mse", output="y")
    assert error.value.what == "the loss cannot be differentiated: 3 ops in the way"
    assert error.value.facts == (
        "op 'one' (MaxRoiPool): no gradient rule: the sizes of its windows depend on data",
        "op 'two' (AveragePool): auto_pad SAME_UPPER with strides larger than the windows is not defined clearly",
        "op 'three' (MaxRoiPool): no gradient rule: the sizes of its windows depend on data",
    )


@pytest.mark.parametrize("quantise", ["QuantizeLinear", "DynamicQuantizeLinear"])
def test_what_is_trained_before_a_quantisation_is_not_left_out_silently(quantise, forward_model):
    """Its integers carry no gradient, and all weights before it would stay as they are."""
    scale = "scale" if quantise == "QuantizeLinear" else "own"
    inputs, outputs = (["h", "scale"], ["q"]) if quantise == "QuantizeLinear" else (["h"], ["q", "own", "zero"])
    nodes = [
        node("MatMul", ["x", "w"], ["h"]), node(quantise, inputs, outputs, name="quantised"),
        node("DequantizeLinear", ["q", scale], ["d"], name="back"), node("MatMul", ["d", "v"], ["y"]),
    ]  # fmt: skip
    weights = {"w": random((4, 4)), "v": random((4, 3))}
    constants = {"scale": np.array(0.5, np.float32)}
    weights = {name: value.astype(np.float32) for name, value in weights.items()}
    forward = forward_model(nodes, weights, {"x": random((2, 4)).astype(np.float32)}, constants)
    with pytest.raises(UnsupportedError) as error:
        built(forward, loss="mse")
    assert "op 'quantised' (" + quantise + "): no gradient rule: quantised values are not trained" in error.value.facts
    assert len(set(error.value.facts)) == len(error.value.facts)
    assert built(forward_model(nodes[1:], {"v": weights["v"]}, {"h": weights["w"]}, constants), loss="mse").state


@pytest.mark.parametrize(
    ("options", "what", "hint"),
    [
        (
            {"loss": "softmax_crossentropy"},
            "unknown loss 'softmax_crossentropy'",
            "did you mean 'softmax_cross_entropy'?",
        ),
        ({"optimizer": "momentun"}, "unknown optimizer 'momentun'", "did you mean 'momentum'?"),
        ({"optimizer": "qqq"}, "unknown optimizer 'qqq'", ""),
        ({"learning_rate": 0.0}, "the learning rate is 0.0", ""),
        ({"learning_rate": float("nan")}, "the learning rate is nan", ""),
        ({"hyper": Hyper(momentum=1.0)}, "the momentum is 1.0", ""),
        ({"batchnorm": "eval"}, "batchnorm is 'eval'", ""),
        ({"output": "logit"}, "no output 'logit'", "did you mean 'logits'?"),
        ({"batch": 0}, "the batch is 0", ""),
    ],
)
def test_options_that_cannot_be_used(options, what, hint, mlp):
    with pytest.raises(UsageError) as error:
        built(mlp(), **options)
    assert what in error.value.what
    assert error.value.hint == hint


def test_the_output_must_be_chosen_among_several(mlp):
    with pytest.raises(UsageError, match="2 outputs") as error:
        built(mlp(outputs=("logits", "r")))
    assert error.value.facts == ("'logits': [6, 3] of float32", "'r': [6, 5] of float32")


def test_a_training_step_is_refused(mlp):
    with pytest.raises(UnsupportedError, match="has state"):
        build_training_graph(built(mlp()), loss="mse", optimizer="sgd", learning_rate=0.1, output="logits")


def test_nothing_to_train(forward_model):
    with pytest.raises(UnsupportedError, match="depends on no parameter"):
        built(forward_model([node("Exp", ["x"], ["y"])], data={"x": random((2, 3))}))


def test_cross_entropy_wants_classes(forward_model):
    with pytest.raises(
        UnsupportedError, match=r"takes a float tensor with a dim of samples and one of classes; output 'y'"
    ):
        built(forward_model([node("Exp", ["x"], ["y"])], {"x": random((3,))}))


def test_a_registry_refuses_duplicates():
    other = ModuleType("other")
    other.relu = GradientRule(("Relu",), None, lambda context: [])
    with pytest.raises(AssertionError, match="Relu has two gradient rules"):
        collect(activations, other)


def test_the_same_model_gives_the_same_graph(mlp):
    assert to_model(built(mlp())).SerializeToString(deterministic=True) == to_model(built(mlp())).SerializeToString(
        deterministic=True
    )


@pytest.mark.parametrize("loss", ["mse", "l1", "bce_with_logits", "softmax_cross_entropy", "nll"])
def test_nothing_to_take_the_mean_of(loss, forward_model):
    nodes = [node("Slice", ["x", "starts", "ends"], ["y"])]
    constants = {"starts": np.array([0]), "ends": np.array([0])}
    forward = forward_model(nodes, {"x": random((3, 4))}, constants=constants)
    with pytest.raises(UnsupportedError, match=r"output 'y' is \[0, 4\]"):
        built(forward, loss=loss)
