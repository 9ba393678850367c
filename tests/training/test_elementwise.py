"""Gradient rules of element-wise operators."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from fast_suite import examples
from planner.errors import UnsupportedError
from planner.graph.files.to_onnx import to_model
from planner.training.build import build_training_graph

node = helper.make_node
SMOOTH = [
    ("Neg", {}), ("Exp", {}), ("Sigmoid", {}), ("Tanh", {}), ("Erf", {}), ("Gelu", {}), ("Sin", {}), ("Cos", {}),
    ("Gelu", {"approximate": "tanh"}), ("Softplus", {}), ("Identity", {}), ("Reciprocal", {}),
]  # fmt: skip
KINKED = [("Relu", {}), ("LeakyRelu", {"alpha": 0.2}), ("LeakyRelu", {}), ("Abs", {})]
POSITIVE = [("Sqrt", {}), ("Log", {})]


def away_from_zero(shape, seed=0):
    x = np.random.default_rng(seed).standard_normal(shape)
    return np.sign(x) * (np.abs(x) + 0.05)


@pytest.mark.parametrize(("op_type", "attributes"), [*SMOOTH, *KINKED])
def test_unary(op_type, attributes, check_gradients, forward_model):
    check_gradients(forward_model([node(op_type, ["x"], ["y"], **attributes)], {"x": away_from_zero((3, 4))}))


@pytest.mark.parametrize(("op_type", "attributes"), POSITIVE)
def test_of_positive_numbers(op_type, attributes, check_gradients, forward_model):
    check_gradients(
        forward_model([node(op_type, ["x"], ["y"], **attributes)], {"x": abs(away_from_zero((3, 4))) + 0.1})
    )


@st.composite
def broadcast_shapes(draw):
    full = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    shapes = []
    for _ in range(2):
        kept = draw(st.integers(1, len(full)))
        shapes.append(tuple(draw(st.sampled_from([1, size])) for size in full[-kept:]))
    return shapes


@examples(40)
@given(op_type=st.sampled_from(["Add", "Sub", "Mul", "Div", "Max", "Min", "Where", "Sum"]), shapes=broadcast_shapes())
def test_operands_are_broadcast(op_type, shapes, check_gradients, forward_model):
    a, b = away_from_zero(shapes[0], 1), away_from_zero(shapes[1], 2)
    if op_type == "Where":
        condition = np.random.default_rng(3).standard_normal(np.broadcast_shapes(*shapes)) > 0
        forward = forward_model([node("Where", ["c", "a", "b"], ["y"])], {"a": a, "b": b}, {"c": condition})
    else:
        forward = forward_model([node(op_type, ["a", "b"], ["y"])], {"a": a, "b": b})
    check_gradients(forward)


def test_the_same_operand_twice(check_gradients, forward_model):
    check_gradients(forward_model([node("Mul", ["x", "x"], ["y"])], {"x": away_from_zero((3, 2))}))


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, 0.5, -1.5])
def test_power(exponent, check_gradients, forward_model):
    nodes = [node("Pow", ["x", "p"], ["z"]), node("Add", ["z", "x"], ["y"])]
    x = abs(away_from_zero((2, 3)))
    check_gradients(forward_model(nodes, {"x": x}, constants={"p": np.array(exponent)}))


def test_power_of_zero_by_zero_is_no_nan(reference, forward_model):
    exponents = np.array([[0, 1, 2]], np.int64)
    nodes = [node("Pow", ["x", "p"], ["y"])]
    forward = forward_model(nodes, {"x": np.zeros((2, 3))}, constants={"p": exponents})
    options = {"loss": "mse", "optimizer": "sgd", "learning_rate": 1.0}
    step = build_training_graph(forward.graph(), parameters=forward.trained(), **options)
    assert np.isfinite(reference(to_model(step), {"target": np.ones((2, 3))})["x.next"]).all()


def test_exponent_that_is_trained(check_gradients, forward_model):
    parameters = {"x": abs(away_from_zero((2, 3))) + 0.2, "p": away_from_zero((3,), 4)}
    check_gradients(forward_model([node("Pow", ["x", "p"], ["y"])], parameters))


@pytest.mark.parametrize("bounds", [(-0.5, 0.5), (None, 0.3), (-0.2, None)])
def test_clip(bounds, check_gradients, forward_model):
    names = ["" if bound is None else name for name, bound in zip(("lo", "hi"), bounds, strict=True)]
    constants = {name: np.array(bound) for name, bound in zip(("lo", "hi"), bounds, strict=True) if bound is not None}
    nodes = [node("Clip", ["x", *names], ["y"])]
    check_gradients(forward_model(nodes, {"x": away_from_zero((4, 5))}, constants=constants))


def test_cast_and_back(check_gradients, forward_model):
    nodes = [
        node("Cast", ["x"], ["narrow"], to=TensorProto.FLOAT),
        node("Exp", ["narrow"], ["e"]),
        node("Cast", ["e"], ["y"], to=TensorProto.DOUBLE),
    ]
    forward = forward_model(nodes, {"x": away_from_zero((2, 3))})
    step = check_gradients(forward, loss=lambda target: lambda p: float(np.mean((np.exp(p["x"]) - target) ** 2)))
    assert "Cast" in {op.op_type for op in step.ops}


def test_operators_without_slope_stop_the_gradient(check_gradients, forward_model):
    nodes = [
        node("Floor", ["x"], ["f"]),
        node("Greater", ["x", "zero"], ["mask"]),
        node("Where", ["mask", "x", "f"], ["y"]),
    ]
    check_gradients(forward_model(nodes, {"x": away_from_zero((3, 3))}, constants={"zero": np.array(0.0)}))


def test_dropout_at_inference(check_gradients, forward_model):
    nodes = [node("Dropout", ["x"], ["y"])]
    check_gradients(forward_model(nodes, {"x": away_from_zero((3, 3))}))


def test_dropout_in_training_mode(forward_model, reference):
    """Its gradient is that of the mask that was drawn."""
    nodes = [node("Dropout", ["x", "ratio", "mode"], ["y"], name="drop", seed=3)]
    constants = {"ratio": np.array(0.25), "mode": np.array(True)}
    forward = forward_model(nodes, {"x": away_from_zero((6, 5))}, constants=constants)
    step = build_training_graph(forward.graph(), loss="mse", optimizer="sgd", learning_rate=1.0)
    target = np.zeros((6, 5))
    found = reference(to_model(step), {"target": target})
    kept = found["y"] != 0
    assert 0 < kept.sum() < 30
    np.testing.assert_allclose(forward.parameters["x"] - found["x.next"], kept * 2 * found["y"] / 30 / 0.75)


def test_dropout_whose_mode_is_not_known_is_refused(check_gradients, forward_model):
    nodes = [node("Dropout", ["x", "ratio", "mode"], ["y"], name="drop")]
    forward = forward_model(nodes, {"x": away_from_zero((3, 3))}, {"mode": np.array(True)}, {"ratio": np.array(0.5)})
    with pytest.raises(UnsupportedError) as error:
        check_gradients(forward)
    assert error.value.facts == ("op 'drop' (Dropout): its training_mode is not a known constant",)


PASSES = {
    "silu": ([node("Sigmoid", ["x"], ["s"]), node("Mul", ["x", "s"], ["y"])], 4),
    "silu, the other way round": ([node("Sigmoid", ["x"], ["s"]), node("Mul", ["s", "x"], ["y"])], 4),
    "a factor in silu": (
        [node("Mul", ["x", "scalar"], ["u"]), node("Sigmoid", ["u"], ["s"]), node("Mul", ["x", "s"], ["y"])], 5),
    "a factor in silu, the other way round": (
        [node("Mul", ["scalar", "x"], ["u"]), node("Sigmoid", ["u"], ["s"]), node("Mul", ["s", "x"], ["y"])], 5),
    "square of a mean's distance": (
        [node("ReduceMean", ["x"], ["m"], keepdims=1), node("Sub", ["x", "m"], ["c"]), node("Mul", ["c", "c"], ["q"]),
         node("ReduceSum", ["q", "axes"], ["y"], keepdims=1)], 2),
}  # fmt: skip
"""Nodes, and the most element-wise ops of the gradient on tensors as large as x."""


@pytest.mark.parametrize("name", PASSES)
def test_gradients_in_few_passes(name, check_gradients, forward_model):
    nodes, most = PASSES[name]
    forward = forward_model(
        nodes, {"x": away_from_zero((3, 4))}, constants={"axes": np.array([1]), "scalar": np.array(1.7)}
    )
    step = check_gradients(forward)
    ops = [op for op in step.ops if ".backward" in op.name or op.name.endswith("x.grad")]
    large = [
        op.op_type
        for op in ops
        if op.op_type != "Reshape" and any(step.tensors[out].shape == (3, 4) for out in op.outputs)
    ]
    assert 0 < len(large) <= most
    assert "Expand" not in large


def test_a_trained_factor_in_silu(check_gradients, forward_model):
    nodes = [node("Mul", ["x", "beta"], ["u"]), node("Sigmoid", ["u"], ["s"]), node("Mul", ["x", "s"], ["y"])]
    step = check_gradients(forward_model(nodes, {"x": away_from_zero((3, 4)), "beta": np.array([1.7])}))
    assert "beta" in {pair.current for pair in step.state}
