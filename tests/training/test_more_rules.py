"""Gradient rules of activations, reductions, indexing, interpolation, einsum and the rest, against differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import stock_runtime
from drawn import random
from fast_suite import examples
from planner.graph.core.interpolation import interpolation
from planner.training.build import build_training_graph
from written_out import written_out

node = helper.make_node


def ints(*values):
    return np.array(values, np.int64)


def away(shape, seed=0, at=(0.0,)):
    """Random numbers that keep their distance from kinks."""
    x = 2 * random(shape, seed)
    for kink in at:
        x = np.where(np.abs(x - kink) < 0.05, kink + 0.1, x)
    return x


ACTIVATIONS = [
    ("Elu", {}), ("Elu", {"alpha": 0.3}), ("Selu", {}), ("Selu", {"alpha": 1.2, "gamma": 0.8}),
    ("HardSigmoid", {"alpha": 0.25, "beta": 0.5}), ("Mish", {}), ("Softsign", {}),
    ("HardSwish", {}), ("Shrink", {"lambd": 0.5, "bias": 0.2}), ("ThresholdedRelu", {"alpha": 0.6}),
    ("Tan", {}), ("Sinh", {}), ("Cosh", {}), ("Atan", {}), ("Asinh", {}),
]  # fmt: skip


@pytest.mark.parametrize(("op_type", "attributes"), ACTIVATIONS)
def test_activation(op_type, attributes, check_gradients, forward_model):
    x = away((4, 5), at=(0.0, -2.0, 2.0, -3.0, 3.0, 0.5, -0.5, 0.6))
    x = np.clip(x, -1.2, 1.2) if op_type == "Tan" else x
    check_gradients(forward_model([node(op_type, ["x"], ["y"], **attributes)], {"x": x}), tolerance=1e-5)


def test_swish(check_gradients, forward_model):
    nodes = [node("Swish", ["x"], ["y"], alpha=1.3)]
    check_gradients(forward_model(nodes, {"x": random((3, 4))}, opset=24))


@pytest.mark.parametrize("op_type", ["Asin", "Acos", "Atanh"])
def test_of_small_numbers(op_type, check_gradients, forward_model):
    check_gradients(forward_model([node(op_type, ["x"], ["y"])], {"x": 0.8 * np.tanh(random((3, 4)))}))


def test_acosh(check_gradients, forward_model):
    check_gradients(forward_model([node("Acosh", ["x"], ["y"])], {"x": 1.2 + abs(random((3, 4)))}))


@pytest.mark.parametrize("shape", [(4,), (1,), (3, 1), (1, 4)])
def test_prelu(shape, check_gradients, forward_model):
    parameters = {"x": away((2, 3, 4)), "s": random(shape, 3)}
    check_gradients(forward_model([node("PRelu", ["x", "s"], ["y"])], parameters))


@examples(30)
@given(
    op_type=st.sampled_from(["Max", "Min", "Mean", "Sum"]),
    shapes=st.lists(st.sampled_from([(2, 3, 4), (3, 4), (4,), (1, 4), (2, 1, 1)]), min_size=1, max_size=4),
)
def test_any_number_of_operands(op_type, shapes, check_gradients, forward_model):
    parameters = {f"x{index}": random(shape, index + 1) for index, shape in enumerate(shapes)}
    check_gradients(forward_model([node(op_type, [*parameters], ["y"])], parameters))


@pytest.mark.parametrize("fmod", [0, 1])
def test_modulus(fmod, check_gradients, forward_model):
    a, b = np.array([3.3, -4.1, 7.7, 0.4]), np.array([1.3, 1.1, -2.3 if fmod else 2.3, 3.0])
    nodes = [node("Mod", ["a", "b"], ["y"], fmod=1)]
    check_gradients(forward_model(nodes, {"a": abs(a) if not fmod else a, "b": b}))


@pytest.mark.parametrize("trained", [("x",), ("x", "lo"), ("lo", "hi"), ("x", "lo", "hi")])
def test_bounds_of_a_clip(trained, check_gradients, forward_model):
    x = away((4, 5), at=(-0.5, 0.5))
    nodes = [node("ReduceSum", ["l"], ["lo"], keepdims=0), node("ReduceSum", ["h"], ["hi"], keepdims=0),
             node("Clip", ["x", "lo", "hi"], ["y"])]  # fmt: skip
    values = {"x": x, "l": np.array([-0.3, -0.2]), "h": np.array([0.4, 0.1])}
    names = {"x": "x", "lo": "l", "hi": "h"}
    parameters = {names[name]: values[names[name]] for name in trained}
    data = {name: value for name, value in values.items() if name not in parameters}
    check_gradients(forward_model(nodes, parameters, data))


REDUCTIONS = ["ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp", "ReduceProd"]


@examples(60)
@given(
    op_type=st.sampled_from(REDUCTIONS),
    axes=st.sampled_from([None, (0,), (1,), (-1,), (0, 2), (0, 1, 2)]),
    keepdims=st.sampled_from([0, 1]),
)
def test_reduction(op_type, axes, keepdims, check_gradients, forward_model):
    x = away((2, 3, 2))
    if op_type == "ReduceLogSum":
        x = abs(x)
    constants = {} if axes is None else {"axes": ints(*axes)}
    nodes = [node(op_type, ["x", *constants], ["y"], keepdims=keepdims)]
    check_gradients(forward_model(nodes, {"x": x}, constants=constants), tolerance=1e-5)


def test_product_with_zeros(check_gradients, forward_model):
    x = random((3, 4))
    x[0, 1] = x[1, 0] = x[1, 2] = 0
    nodes = [node("ReduceProd", ["x", "a"], ["y"], keepdims=0)]
    check_gradients(forward_model(nodes, {"x": x}, constants={"a": ints(1)}))


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_cumulative_sum(exclusive, reverse, check_gradients, forward_model):
    nodes = [node("CumSum", ["x", "a"], ["y"], exclusive=exclusive, reverse=reverse)]
    check_gradients(forward_model(nodes, {"x": random((3, 4))}, constants={"a": np.array(1)}))


@pytest.mark.parametrize(
    ("nodes", "shape", "constants"),
    [
        ([node("Trilu", ["x"], ["y"])], (2, 4, 3), {}),
        ([node("Trilu", ["x", "k"], ["y"], upper=0)], (4, 5), {"k": np.array(-1)}),
        ([node("Tile", ["x", "r"], ["y"])], (2, 3), {"r": ints(3, 2)}),
        ([node("Tile", ["x", "r"], ["y"])], (2, 1, 3), {"r": ints(1, 4, 2)}),
        ([node("DepthToSpace", ["x"], ["y"], blocksize=2)], (2, 8, 2, 3), {}),
        ([node("DepthToSpace", ["x"], ["y"], blocksize=2, mode="CRD")], (2, 8, 2, 3), {}),
        ([node("SpaceToDepth", ["x"], ["y"], blocksize=2)], (2, 3, 4, 6), {}),
        ([node("Pad", ["x", "p"], ["y"], mode="edge")], (3, 4), {"p": ints(1, 2, 0, 3)}),
        ([node("Pad", ["x", "p"], ["y"], mode="reflect")], (3, 4), {"p": ints(2, 1, 1, 3)}),
        ([node("Pad", ["x", "p", "", "a"], ["y"], mode="wrap")], (3, 4), {"p": ints(2, 1), "a": ints(1)}),
        ([node("ReverseSequence", ["x", "l"], ["y"], time_axis=1, batch_axis=0)], (3, 4), {"l": ints(2, 4, 1)}),
        ([node("TopK", ["x", "k"], ["y", "i"], axis=1, largest=0)], (3, 5), {"k": ints(2)}),
        ([node("GatherND", ["x", "i"], ["y"], batch_dims=1)], (2, 3, 4), {"i": np.array([[[1], [0]], [[2], [2]]])}),
        ([node("GatherND", ["x", "i"], ["y"], batch_dims=2)], (2, 2, 4), {"i": np.array([[[1], [3]], [[2], [2]]])}),
        ([node("LpNormalization", ["x"], ["y"], axis=1)], (3, 4), {}),
        ([node("LpNormalization", ["x"], ["y"], axis=0, p=1)], (3, 4), {}),
        ([node("LRN", ["x"], ["y"], size=3, alpha=0.2, bias=1.5)], (2, 5, 2, 3), {}),
        ([node("LRN", ["x"], ["y"], size=4, alpha=0.5, beta=0.6)], (2, 6, 2, 2), {}),
        ([node("GlobalMaxPool", ["x"], ["y"])], (2, 3, 4, 2), {}),
        ([node("LpPool", ["x"], ["y"], kernel_shape=[2, 3], strides=[2, 1], pads=[0, 1, 1, 1])], (2, 2, 5, 4), {}),
        ([node("LpPool", ["x"], ["y"], kernel_shape=[2], p=3)], (2, 2, 5), {}),
        ([node("GlobalLpPool", ["x"], ["y"])], (2, 3, 4, 2), {}),
        ([node("MeanVarianceNormalization", ["x"], ["y"], axes=[0, 2])], (3, 2, 4), {}),
    ],
)  # fmt: skip
def test_of_one_operand(nodes, shape, constants, check_gradients, forward_model):
    check_gradients(forward_model(nodes, {"x": away(shape)}, constants=constants), tolerance=1e-5)


def test_value_of_a_pad(check_gradients, forward_model):
    nodes = [node("ReduceSum", ["v"], ["value"], keepdims=0), node("Pad", ["x", "p", "value"], ["y"])]
    forward = forward_model(nodes, {"x": random((3, 4)), "v": random((2,))}, constants={"p": ints(1, -1, 0, 2)})
    check_gradients(forward)


def test_a_query_that_sees_no_key_gives_nothing_to_any_gradient(forward_model):
    """The runtime's result is 0 there, and so is the step's own, which is no NaN."""
    seen = np.array([[1, 1, 0], [0, 0, 0], [1, 0, 1]], bool)
    nodes = [node("Constant", [], ["m"], value=numpy_helper.from_array(seen)),
             node("Attention", ["q", "k", "v", "m"], ["y"], softcap=2.0)]  # fmt: skip
    values = {name: random((1, 2, 3, 4), seed).astype(np.float32) for seed, name in enumerate("qkv")}
    forward = forward_model(nodes, values, opset=23)
    step = build_training_graph(
        forward.graph(), loss="mse", optimizer="sgd", learning_rate=1.0, parameters=forward.trained()
    )
    made = stock_runtime.run(step, {**values, "target": np.zeros((1, 2, 3, 4), np.float32)})
    assert all(np.isfinite(array).all() for array in made.values())
    assert not (made["q.next"] - values["q"])[:, :, 1].any()
    assert (made["q.next"] - values["q"])[:, :, [0, 2]].any()


@pytest.mark.parametrize("reduction", ["none", "add"])
def test_scatter(reduction, check_gradients, forward_model):
    index = np.array([[0, 2, 1], [3, 0, 0]])
    parameters = {"x": random((4, 3)), "u": random((2, 3), 2)}
    nodes = [node("ScatterElements", ["x", "i", "u"], ["y"], axis=0, reduction=reduction)]
    check_gradients(forward_model(nodes, parameters, constants={"i": index}))
    nodes = [node("ScatterND", ["x", "i", "u"], ["y"], reduction=reduction)]
    check_gradients(forward_model(nodes, parameters, constants={"i": np.array([[2], [0]])}))


EINSUMS = [
    ("ij,jk->ik", [(2, 3), (3, 4)]), ("bij,bkj->bik", [(2, 3, 4), (2, 5, 4)]), ("i,i", [(3,), (3,)]),
    ("ij->ji", [(2, 3)]),
    ("ij->i", [(2, 3)]), ("ij,ij->", [(2, 3), (2, 3)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 4), (1, 5, 4, 2)]), ("ab,bc", [(2, 3), (3, 2)]),
    ("i,j,k->kij", [(2,), (3,), (4,)]), ("bhqd,bhkd->bhqk", [(1, 2, 3, 4), (1, 2, 5, 4)]), ("ij,k->k", [(2, 3), (4,)]),
    ("ii->i", [(3, 3)]), ("ii", [(3, 3)]), ("iii->i", [(2, 2, 2)]), ("iij->j", [(3, 3, 2)]), ("jij->ij", [(2, 3, 2)]),
    ("ii,ij->j", [(3, 3), (3, 2)]), ("iijj,ij->ij", [(2, 2, 3, 3), (2, 3)]), ("...ii->...i", [(2, 3, 3)]),
    ("ii,ii->i", [(3, 3), (3, 3)]),
]  # fmt: skip


@pytest.mark.parametrize(("equation", "shapes"), EINSUMS)
def test_einsum(equation, shapes, check_gradients, forward_model):
    parameters = {f"x{index}": random(shape, index + 1) for index, shape in enumerate(shapes)}
    check_gradients(forward_model([node("Einsum", [*parameters], ["y"], equation=equation)], parameters))


MODES = [
    "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric", "tf_crop_and_resize"
]  # fmt: skip


@examples(80)
@given(
    size=st.integers(1, 30),
    by=st.one_of(st.integers(1, 40), st.integers(2, 30).map(lambda tenths: np.float32(tenths / 10))),
    mode=st.sampled_from(["nearest", "nearest", "linear", "cubic"]),
    coordinates=st.sampled_from(MODES),
    rounding=st.sampled_from(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]),
    exclude=st.booleans(),
    region=st.sampled_from([(0.0, 1.0), (0.25, 0.75), (-0.2, 1.2), (0.1, 0.6)]),
)
def test_interpolation_is_the_runtimes(size, by, mode, coordinates, rounding, exclude, region):
    """Each output asks for each input: where ONNX Runtime reads, the gradient goes, to the last bit of a scale."""
    exclude = exclude and mode == "cubic"
    is_scale, crops = isinstance(by, np.float32), coordinates == "tf_crop_and_resize"
    made = int(size * by * (np.float32(region[1]) - np.float32(region[0]) if crops else 1)) if is_scale else by
    assume(made > 0)
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates, "axes": [1]}
    attributes |= {"nearest_mode": rounding} if mode == "nearest" else {"exclude_outside": int(exclude)}
    known = {"s": np.array([by], np.float32 if is_scale else np.int64), "r": np.array(region, np.float32)}
    operands = ["x", "r" if crops else "", *(["s"] if is_scale else ["", "s"])]
    proto = helper.make_model(
        helper.make_graph(
            [node("Resize", operands, ["y"], **attributes)], "g",
            [helper.make_tensor_value_info("x", 1, [size, size])], [helper.make_tensor_value_info("y", 1, None)],
            [numpy_helper.from_array(value, name) for name, value in known.items()],
        ), opset_imports=[helper.make_opsetid("", 19)], ir_version=9,
    )  # fmt: skip
    expected = stock_runtime.run(proto, {"x": np.eye(size, dtype=np.float32)})["y"].T
    made = len(expected)
    assume(made != size)  # it is copied then
    scale = float(by) if is_scale else made / size
    bounds = tuple(float(np.float32(bound)) for bound in region) if crops else (0.0, 1.0)
    found = interpolation(size, made, scale, mode=mode, coordinates=coordinates, rounding=rounding, cubic=-0.75,
                          exclude=exclude, region=bounds)  # fmt: skip
    np.testing.assert_allclose(written_out(found), expected, atol=0 if mode == "nearest" else 5e-5)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"mode": "linear"},
        {"mode": "cubic", "cubic_coeff_a": -0.5},
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    ],
)
@pytest.mark.parametrize("by", ["sizes", "scales"])
def test_resize(attributes, by, check_gradients, forward_model):
    if by == "scales" and attributes.get("coordinate_transformation_mode") == "align_corners":
        pytest.skip("ONNX's reference counts with a fraction of an element here, ONNX Runtime does not")
    constants = {"s": ints(1, 2, 5, 4)} if by == "sizes" else {"s": np.array([1, 1, 1.7, 0.6], np.float32)}
    inputs = ["x", "", "", "s"] if by == "sizes" else ["x", "", "s"]
    forward = forward_model([node("Resize", inputs, ["y"], **attributes)], {"x": random((1, 2, 3, 6))},
                            constants=constants)  # fmt: skip
    check_gradients(forward)


@examples(40)
@given(data=st.data())
def test_conv_transpose(data, check_gradients, forward_model):
    dims = data.draw(st.integers(1, 2))
    group = data.draw(st.sampled_from([1, 2]))
    kernel = [data.draw(st.integers(1, 3)) for _ in range(dims)]
    strides = [data.draw(st.integers(1, 3)) for _ in range(dims)]
    dilations = [data.draw(st.integers(1, 2)) for _ in range(dims)]
    sizes = [data.draw(st.integers(2, 4)) for _ in range(dims)]
    reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    pads = [data.draw(st.integers(0, min(1, r))) for r in reach * 2]
    extra = [data.draw(st.integers(0, max(s, d) - 1)) for s, d in zip(strides, dilations, strict=True)]
    nodes = [
        node("ConvTranspose", ["x", "w"], ["t"], strides=strides, dilations=dilations, pads=pads, output_padding=extra,
             group=group, kernel_shape=kernel),
        node("Add", ["t", "b"], ["y"]),
    ]  # fmt: skip
    parameters = {
        "x": random((2, 2 * group, *sizes)), "w": random((2 * group, 3, *kernel), 2),
        "b": random((3 * group, *(1 for _ in sizes)), 3),
    }  # fmt: skip
    check_gradients(forward_model(nodes, parameters))
