"""Operators of onnxruntime-training beside what differentiating the forward operator gives."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from drawn import random32 as random
from microsoft_models import PREVIEW, model_of, ms, run
from planner.errors import ModelError, UnsupportedError
from planner.graph.decompositions.registry import Purpose, decompositions
from planner.training.doors.artifacts import read_gradients
from planner.training.doors.rewriting import read_rewritten
from planner.training.doors.training_info import read_training_info

node = helper.make_node
IMAGE, VECTOR = (2, 3, 6, 5), (3,)
POOL = {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [0, 1, 1, 1]}
CONV = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1], "group": 1, "dilations": [1, 2]}
CASES = [
    # forward, its inputs, gradient operators: outputs are called d and the input's name
    ([node("Sigmoid", ["x"], ["y"])], {"x": (2, 3)}, [ms("SigmoidGrad", ["dy", "y"], ["dx"])], {}),
    ([node("Tanh", ["x"], ["y"])], {"x": (2, 3)}, [ms("TanhGrad", ["dy", "y"], ["dx"])], {}),
    ([node("Relu", ["x"], ["y"])], {"x": (2, 3)}, [ms("ReluGrad", ["dy", "y"], ["dx"])], {}),
    ([node("LeakyRelu", ["x"], ["y"], alpha=0.3)], {"x": (2, 3)},
     [ms("LeakyReluGrad", ["dy", "y"], ["dx"], alpha=0.3)], {}),
    ([node("Gelu", ["x"], ["y"])], {"x": (2, 3)}, [ms("GeluGrad", ["dy", "x"], ["dx"])], {}),
    ([node("Gelu", ["x"], ["y"], approximate="tanh")], {"x": (2, 3)}, [ms("FastGeluGrad", ["dy", "x"], ["dx"])], {}),
    ([node("Add", ["x", "b"], ["a"]), node("Gelu", ["a"], ["y"])], {"x": (2, 3), "b": (3,)},
     [ms("BiasGeluGrad_dX", ["dy", "x", "b"], ["dx"])], {}),
    ([node("Softmax", ["x"], ["y"], axis=1)], {"x": (2, 3, 4)},
     [ms("SoftmaxGrad_13", ["dy", "y"], ["dx"], axis=1)], {}),
    ([node("LogSoftmax", ["x"], ["y"])], {"x": (2, 3, 4)}, [ms("LogSoftmaxGrad_13", ["dy", "y"], ["dx"])], {}),
    ([node("Div", ["a", "b"], ["y"])], {"a": (2, 3), "b": (3,)}, [ms("DivGrad", ["dy", "a", "b"], ["da", "db"])], {}),
    ([node("Conv", ["x", "w", "b"], ["y"], **CONV)], {"x": IMAGE, "w": (4, 3, 3, 2), "b": (4,)},
     [ms("ConvGrad", ["dy", "x", "w"], ["dx", "dw", "db"], **CONV)], {}),
    ([node("MaxPool", ["x"], ["y", "i"], **POOL)], {"x": IMAGE}, [ms("MaxPoolGrad", ["dy", "i"], ["dx"], **POOL)], {}),
    ([node("AveragePool", ["x"], ["y"], **POOL)], {"x": IMAGE}, [ms("AveragePoolGrad", ["dy"], ["dx"], **POOL)], {}),
    ([node("Gather", ["x", "i"], ["y"], axis=1)], {"x": (3, 4)},
     [node("Shape", ["x"], ["s"]), ms("GatherGrad", ["s", "i", "dy"], ["dx"], axis=1)],
     {"i": np.array([[0, 3], [3, 1]])}),
    ([node("GatherElements", ["x", "i"], ["y"], axis=1)], {"x": (2, 4)},
     [node("Shape", ["x"], ["s"]), ms("GatherElementsGrad", ["dy", "s", "i"], ["dx"], axis=1)],
     {"i": np.array([[0, 3], [1, 1]])}),
    ([node("Slice", ["x", "f", "t"], ["y"])], {"x": (4, 5)},
     [node("Shape", ["x"], ["s"]), ms("SliceGrad", ["dy", "s", "f", "t"], ["dx"])],
     {"f": np.array([1, 0]), "t": np.array([3, 4])}),
    ([node("LayerNormalization", ["x", "s", "b"], ["y", "m", "v"])], {"x": (2, 3, 4), "s": (4,), "b": (4,)},
     [ms("LayerNormalizationGrad", ["dy", "x", "s", "m", "v"], ["dx", "ds", "db"], axis=-1)], {}),
    ([node("LayerNormalization", ["x", "s", "b"], ["y", "m", "v"])], {"x": (2, 3, 4), "s": (4,), "b": (4,)},
     [ms("InvertibleLayerNormalizationGrad", ["dy", "y", "s", "b", "v"], ["dx", "ds", "db"], axis=-1)], {}),
    ([node("MatMul", ["a", "b"], ["y"])], {"a": (2, 3, 4), "b": (2, 4, 5)},
     [ms("FusedMatMul", ["dy", "b"], ["da"], transB=1), ms("FusedMatMul", ["a", "dy"], ["db"], transA=1)], {}),
    ([node("Add", ["a", "b"], ["y"])], {"a": (2, 3, 4), "b": (3, 1)},
     [node("Shape", ["a"], ["sa"]), node("Shape", ["b"], ["sb"]),
      ms("BroadcastGradientArgs", ["sa", "sb"], ["axa", "axb"]),
      ms("ReduceSumTraining", ["dy", "axb"], ["r"], keepdims=1), node("Reshape", ["r", "sb"], ["db"]),
      node("Identity", ["dy"], ["da"])], {}),
    ([node("SoftmaxCrossEntropyLoss", ["x", "t", "w"], ["y", "p"], ignore_index=1)], {"x": (5, 4)},
     [ms("SoftmaxCrossEntropyLossGrad", ["dy", "p", "t", "w"], ["dx"], ignore_index=1, reduction="mean")],
     {"t": np.array([0, 1, 2, 3, 3]), "w": np.array([0.5, 1, 2, 3], np.float32)}),
]  # fmt: skip


@pytest.mark.parametrize(("forward", "shapes", "gradients", "constants"), CASES)
def test_lowered(forward, shapes, gradients, constants):
    feeds = {name: random(shape, index) for index, (name, shape) in enumerate(shapes.items())}
    feeds = {name: np.abs(value) + 0.5 if name == "b" else value for name, value in feeds.items()}
    names = list(shapes)
    made = {name for one in gradients for name in one.output}
    wanted = [name for name in names if f"d{name}" in made]

    y_shape = read_rewritten(model_of(forward, shapes, constants, ["y"])).tensors["y"].shape
    feeds["dy"] = random(y_shape, 9)
    shapes = {**shapes, "dy": y_shape}
    outputs = [f"d{name}" for name in wanted]
    # An AveragePoolGrad is told by its forward op, which the loss keeps alive in a real model.
    lowered = read_rewritten(model_of([*forward, *gradients], shapes, constants, [*outputs, "y"]))
    assert {op.domain for op in lowered.ops} == {""}
    found = run(lowered, feeds)

    products = [node("Mul", ["y", "dy"], ["ydy"]), node("ReduceSum", ["ydy"], ["total"], keepdims=0),
                node("Gradient", wanted, outputs, xs=wanted, y="total", domain=PREVIEW)]  # fmt: skip
    expected = run(read_training_info(model_of([*forward, *products], shapes, constants, outputs)), feeds)
    for name in outputs:
        np.testing.assert_allclose(found[name], expected[name], rtol=2e-5, atol=2e-6, err_msg=name)


def test_batch_normalization():
    """The gradient of BatchNormInternal, written out in NumPy."""
    x, scale, bias, dy = random((4, 3, 2), 1), random((3,), 2), random((3,), 3), random((4, 3, 2), 4)
    nodes = [
        ms("BatchNormInternal", ["x", "s", "b", "rm", "rv"], ["y", "m2", "v2", "sm", "si"], epsilon=1e-3),
        ms("BatchNormalizationGrad", ["dy", "x", "s", "sm", "si"], ["dx", "ds", "db"], epsilon=1e-3),
    ]
    shapes = {"x": x.shape, "s": (3,), "b": (3,), "dy": dy.shape}
    constants = {"rm": np.zeros(3, np.float32), "rv": np.ones(3, np.float32)}
    outputs = ["y", "dx", "ds", "db", "v2"]
    graph = read_rewritten(model_of(nodes, shapes, constants, outputs))
    found = run(graph, {"x": x, "s": scale, "b": bias, "dy": dy})
    mean, var = x.mean((0, 2), keepdims=True), x.var((0, 2), keepdims=True)
    normal = (x - mean) / np.sqrt(var + 1e-3)
    column = (1, 3, 1)
    g = dy * scale.reshape(column)
    dx = (g - g.mean((0, 2), keepdims=True) - normal * (g * normal).mean((0, 2), keepdims=True)) / np.sqrt(var + 1e-3)
    expected = {"y": normal * scale.reshape(column) + bias.reshape(column), "dx": dx,
                "ds": (dy * normal).sum((0, 2)), "db": dy.sum((0, 2)), "v2": 0.9 + 0.1 * var.reshape(-1)}  # fmt: skip
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("options", "constants", "factor"),
    [(["", ""], {}, 2.0), (["ratio"], {"ratio": np.float32(0.2)}, 1.25),
     (["ratio", "mode"], {"ratio": np.float32(0.2), "mode": np.array(False)}, 0.0)],
)  # fmt: skip
def test_dropout(options, constants, factor):
    """The gradient where the mask says so, of an element that was kept larger; without training all of it."""
    nodes = [node("Greater", ["x", "zero"], ["mask"]), ms("DropoutGrad", ["dy", "mask", *options], ["dx"])]
    shapes = {"x": (3, 4), "dy": (3, 4)}
    graph = read_rewritten(model_of(nodes, shapes, {"zero": np.float32(0), **constants}, ["dx"]))
    feeds = {name: random(shape, index) for index, (name, shape) in enumerate(shapes.items())}
    expected = np.where(feeds["x"] > 0, factor * feeds["dy"], 0) if factor else feeds["dy"]
    np.testing.assert_allclose(run(graph, feeds)["dx"], expected, rtol=1e-6)


def test_running_statistics_of_two_ops_follow_one_another():
    """Both ops read and write the same two inputs, the second after the first."""
    x, dy = random((4, 3, 2), 1), random((4, 3, 2), 2)
    nodes = [
        ms("BatchNormInternal", ["x", "s", "b", "rm", "rv"], ["u", "m1", "v1", "sm", "si"]),
        ms("BatchNormInternal", ["u", "s", "b", "rm", "rv"], ["y", "m2", "v2", "sm2", "si2"]),
        ms("BatchNormalizationGrad", ["dy", "u", "s", "sm2", "si2"], ["du", "s_grad", "b_grad"]),
        *(ms("InPlaceAccumulatorV2", [f"{name}.buffer", f"{name}_grad"], [f"{name}.done"]) for name in "sb"),
    ]
    shapes = {"x": x.shape, "dy": dy.shape, **dict.fromkeys(["s", "b", "rm", "rv", "s.buffer", "b.buffer"], (3,))}
    read = read_gradients(model_of(nodes, shapes, {}, ["y", "s.done", "b.done"]))
    assert read.pairs == (("s", "s_grad"), ("b", "b_grad"))
    assert [(pair.current, pair.following) for pair in read.running] == [("rm", "rm.next"), ("rv", "rv.next")]
    assert set(read.graph.inputs) == {"x", "dy", "s", "b", "rm", "rv"}
    feeds = {"x": x, "dy": dy, "s": np.ones(3, np.float32), "b": np.full(3, 2, np.float32),
             "rm": random((3,), 3), "rv": np.ones(3, np.float32)}  # fmt: skip
    found = run(read.graph, feeds)
    expected = 0.9 * (0.9 * feeds["rm"] + 0.1 * x.mean((0, 2))) + 0.1 * feeds["b"]
    np.testing.assert_allclose(found["rm.next"], expected, rtol=1e-5, atol=1e-6)


def test_an_operator_without_a_standard_form_is_named():
    nodes = [ms("BitmaskDropoutGrad", ["x"], ["y"], name="drop")]
    with pytest.raises(UnsupportedError) as error:
        read_rewritten(model_of(nodes, {"x": (2, 3)}, {}, ["y"]))
    assert "op 'drop' (BitmaskDropoutGrad)" in error.value.facts[0]
    nodes = [ms("LSTMGrad", ["x"], ["y"], name="cell")]
    with pytest.raises(UnsupportedError) as error:
        read_rewritten(model_of(nodes, {"x": (2, 3)}, {}, ["y"]))
    assert error.value.facts[0].startswith("op 'cell' (LSTMGrad): the op whose gradient it is")
    nodes = [ms("Frobnicate", ["x"], ["y"], name="odd")]
    with pytest.raises(UnsupportedError) as error:
        read_rewritten(model_of(nodes, {"x": (2, 3)}, {}, ["y"]))
    assert "operator Frobnicate of domain 'com.microsoft'" in error.value.facts[0]


@pytest.mark.parametrize("qualified", decompositions(Purpose.ARTIFACTS))
def test_a_node_that_its_operator_would_not_take_is_an_error_of_the_model(qualified):
    """ONNX has no schema of these, so that nobody has looked at the node before."""
    wrong = ({}, {"axis": 1.5}, {"axis": 9}, {"alpha": "x"}, {"reduction": 3}, {"pads": [-1] * 6}, {"hidden_size": -1})
    found: list[str] = []
    domain, _, name = qualified.rpartition(".")
    for count in range(7):
        for attributes in wrong:
            one = helper.make_node(name, ["x"] * count, ["y"], domain=domain, name="odd", **attributes)
            try:
                read_rewritten(model_of([one], {"x": (2, 3)}, {}, ["y"]))
            except ModelError as error:
                found.append(str(error))
    # An op that stands for it is called by its own name and by the result's.
    assert all("odd" in message or ".y'" in message for message in found)
    assert found


@pytest.mark.parametrize(("attributes", "expected"), [({"start": 0}, [2, 3, 4]), ({"start": 1, "end": -1}, [3])])
def test_shapes_from_a_start_to_an_end_are_known(attributes, expected):
    nodes = [node("Shape", ["x"], ["s"], **attributes), node("ConstantOfShape", ["s"], ["z"]),
             node("Shape", ["z"], ["y"])]  # fmt: skip
    graph = read_rewritten(model_of(nodes, {"x": (2, 3, 4)}, {}, ["y"]))
    assert graph.constants["y.value"].tolist() == expected
    with pytest.raises(ModelError, match="Shape"):
        read_rewritten(model_of([node("Shape", ["x"], ["y"], start=0.5)], {"x": (2, 3)}, {}, ["y"]))


def test_models_of_older_opsets_are_refused():
    model = model_of([node("Softmax", ["x"], ["y"], axis=1)], {"x": (2, 3, 4)}, {}, ["y"])
    model.opset_import[0].version = 12
    with pytest.raises(UnsupportedError, match="opset 12"):
        read_rewritten(model)


def test_an_operator_of_a_later_opset_is_refused():
    """Ops of an older opset are read at the one that steps are written in, and are none of that one's for it."""
    model = model_of([node("Gelu", ["x"], ["y"], name="late")], {"x": (2, 3)}, {}, ["y"])
    assert [op.op_type for op in read_rewritten(model).ops] == ["Gelu"]
    model.opset_import[0].version = 17
    with pytest.raises(UnsupportedError, match=r"op 'late' \(Gelu\): no such operator at opset 17"):
        read_rewritten(model)
