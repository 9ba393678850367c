"""Det, CumProd, TensorScatter and STFT written out; the rule of DFT; reductions of scatters; Resize's other modes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import helper

from drawn import random
from fast_suite import examples
from planner.errors import UnsupportedError
from planner.graph.core.interpolation import interpolation
from planner.graph.files.to_onnx import to_model
from planner.training.build import build_training_graph
from stock_runtime import run
from written_out import written_out

node = helper.make_node


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_determinant(size, lead, check_written, forward_model):
    check_written(forward_model([node("Det", ["x"], ["y"])], {"x": random((*lead, size, size))}), tolerance=1e-5)


def test_determinant_of_singular_matrices(check_written, forward_model):
    x = random((3, 3))
    x[1] = 2 * x[0]
    check_written(forward_model([node("Det", ["x"], ["y"])], {"x": x}))


def test_large_determinants_are_refused(check_gradients, forward_model):
    with pytest.raises(UnsupportedError) as error:
        check_gradients(forward_model([node("Det", ["x"], ["y"], name="d")], {"x": random((7, 7))}))
    assert "op 'd' (Det): its matrices are 7x7" in error.value.facts[0]


@examples(48)
@given(
    exclusive=st.integers(0, 1), reverse=st.integers(0, 1), axis=st.sampled_from([-1, 1]), size=st.integers(1, 6),
    zeros=st.booleans(),
)  # fmt: skip
def test_cumulative_product(exclusive, reverse, axis, size, zeros, check_written, forward_model):
    assume(size > 1 or not exclusive)  # the product of nothing depends on nothing
    x = random((3, size))
    if zeros:
        x[1, 0] = 0
    forward = forward_model(
        [node("CumProd", ["x", "a"], ["y"], exclusive=exclusive, reverse=reverse)], {"x": x},
        constants={"a": np.array(axis)}, opset=26,
    )  # fmt: skip
    check_written(forward)


@examples(48)
@given(circular=st.booleans(), indexed=st.booleans(), axis=st.sampled_from([-2, 1, 2]), seed=st.integers(0, 99))
def test_tensor_scatter(circular, indexed, axis, seed, check_written, forward_model):
    size = (2, 5, 4, 3)
    written = list(size)
    written[axis] = 2
    top = size[axis] if circular else size[axis] - 2 + 1
    constants = {"i": np.random.default_rng(seed).integers(0, top, 2)} if indexed else {}
    nodes = [node("TensorScatter", ["c", "u", *constants], ["y"], axis=axis, mode="circular" if circular else "linear")]
    parameters = {"c": random(size, 1), "u": random(written, 2)}
    check_written(forward_model(nodes, parameters, constants=constants, opset=24))


@examples(48)
@given(
    parts=st.sampled_from([1, 2]), step=st.integers(1, 4), frame=st.integers(2, 7), given_window=st.booleans(),
)  # fmt: skip
def test_short_time_fourier(parts, step, frame, given_window, check_written, forward_model):
    constants = {"step": np.array(step), "length": np.array(frame)}
    parameters = {"x": random((2, 11, parts))}
    names = ["x", "step", "", "length"]
    if given_window:
        parameters["w"] = random((frame,), 2)
        names[2] = "w"
    forward = forward_model([node("STFT", names, ["y"], onesided=2 - parts)], parameters, constants=constants)
    check_written(forward, tolerance=1e-5)


def test_short_time_fourier_of_an_older_opset(forward_model, reference):
    """The step is of opset 21, whatever the model's."""
    constants = {"step": np.array(2), "length": np.array(4)}
    nodes = [node("STFT", ["x", "step", "", "length"], ["y"], onesided=1)]
    found = []
    for opset in (17, 21):
        forward = forward_model(nodes, {"x": random((2, 9, 1))}, constants=constants, opset=opset)
        step = build_training_graph(forward.graph(), loss="mse", optimizer="sgd", learning_rate=1.0)
        found.append(reference(to_model(step), {"target": np.ones(step.tensors["y"].shape)}))
    np.testing.assert_array_equal(found[0]["x.next"], found[1]["x.next"])


def test_half_a_spectrum_is_made_where_nothing_is_stated(check_gradients, forward_model):
    constants = {"step": np.array(2), "length": np.array(4)}
    nodes = [node("STFT", ["x", "step", "", "length"], ["y"], name="stft")]
    check_gradients(forward_model(nodes, {"x": random((1, 8, 1))}, constants=constants))


@examples(30)
@given(
    kind=st.sampled_from(["real", "complex", "onesided", "inverse", "inverse onesided"]),
    axis=st.sampled_from([0, 1, -2, -3]),
    size=st.integers(2, 6),
    length=st.sampled_from([None, 3, 4, 7, 8]),
)
def test_fourier_transform(kind, axis, size, length, check_gradients, forward_model):
    parts = 1 if kind in ("real", "onesided") else 2
    shape = [3, 4, parts]
    shape[axis] = size
    constants = {"a": np.array(axis)} | ({} if length is None else {"n": np.array(length)})
    names = ["x", "n" if length else "", "a"]
    attributes = {"inverse": int("inverse" in kind), "onesided": int("onesided" in kind)}
    if kind == "inverse onesided":
        assume(length is None or length // 2 + 1 <= size)
    forward = forward_model([node("DFT", names, ["y"], **attributes)], {"x": random(shape)}, constants=constants)
    try:
        forward.graph()
    except Exception:
        assume(kind != "inverse onesided")
        raise
    check_gradients(forward, tolerance=1e-5)


@pytest.mark.parametrize("axis", [None, 1, 2])
def test_fourier_transform_of_an_older_opset(axis, check_gradients, forward_model):
    """Its axis was an attribute, of another default."""
    stated = {} if axis is None else {"axis": axis}
    forward = forward_model([node("DFT", ["x"], ["y"], **stated)], {"x": random((2, 3, 4, 1))}, opset=17)
    step = check_gradients(forward)
    ops = [op for op in step.ops if op.op_type == "DFT"]
    assert {int(step.constants[op.inputs[2]]) for op in ops} == {axis or 1}


@examples(30)
@given(
    reduction=st.sampled_from(["max", "min", "mul", "add", "none"]),
    axis=st.integers(-2, 1),
    zeros=st.integers(0, 3),
    seed=st.integers(0, 999),
    by_element=st.booleans(),
)
def test_reductions_of_a_scatter(reduction, axis, zeros, seed, by_element, check_gradients, forward_model):
    rng = np.random.default_rng(seed)
    shape = [4, 3]
    shape[axis if by_element else 0] = 2
    x, u = random((4, 3), seed), random(shape, seed + 1)
    if reduction == "mul":
        u.flat[rng.choice(u.size, zeros, replace=False)] = 0
    if by_element:
        index = rng.integers(-x.shape[axis], x.shape[axis], shape)
        op_type, attributes = "ScatterElements", {"axis": axis}
    else:
        index, op_type, attributes = rng.integers(-4, 4, (2, 1)), "ScatterND", {}
    if reduction == "none":  # which of two updates of an element stays is open
        lines = np.moveaxis(index % x.shape[axis], axis, 0).T if by_element else [index.reshape(-1) % 4]
        assume(all(len(set(line)) == len(line) for line in lines))
    nodes = [node(op_type, ["x", "i", "u"], ["y"], reduction=reduction, **attributes)]
    check_gradients(forward_model(nodes, {"x": x, "u": u}, constants={"i": index}), tolerance=1e-5)


@pytest.mark.parametrize("axis", [-1, 0])
def test_values_of_one_hot(axis, check_gradients, forward_model):
    constants = {"i": np.array([[0, 2], [-1, 7]]), "d": np.array(3)}
    nodes = [node("OneHot", ["i", "d", "v"], ["y"], axis=axis)]
    check_gradients(forward_model(nodes, {"v": random((2,))}, constants=constants))


def test_equal_extremes_share(reference, forward_model):
    """Two updates and the element itself are the maximum: each has a third of the gradient, as in PyTorch."""
    nodes = [node("ScatterElements", ["x", "i", "u"], ["y"], reduction="max")]
    parameters = {"x": np.array([2.0, 5.0]), "u": np.array([2.0, 2.0, 1.0])}
    forward = forward_model(nodes, parameters, constants={"i": np.array([0, 0, 0])})
    step = build_training_graph(forward.graph(), loss="mse", optimizer="sgd", learning_rate=1.0)
    found = reference(to_model(step), {"target": np.array([-1.0, 5.0])})
    np.testing.assert_allclose(parameters["x"] - found["x.next"], [1, 0])
    np.testing.assert_allclose(parameters["u"] - found["u.next"], [1, 1, 0])


def matrix_of_the_kernel(size, constants, names, **attributes):
    """Resize along the last dim as a matrix, by ONNX Runtime."""
    initializers = [helper.make_tensor(n, 1 if v.dtype == np.float32 else 7, v.shape, v) for n, v in constants.items()]
    graph = helper.make_graph(
        [node("Resize", ["x", *names], ["y"], **attributes)], "g",
        [helper.make_tensor_value_info("x", 1, [1, 1, size, size])], [helper.make_tensor_value_info("y", 1, None)],
        initializers,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)
    return run(model, {"x": np.eye(size, dtype=np.float32)[None, None]})["y"][0, 0].T


@examples(30)
@given(
    size=st.integers(2, 9),
    made=st.integers(1, 9),
    mode=st.sampled_from(["linear", "cubic"]),
    coordinates=st.sampled_from(["half_pixel", "asymmetric", "align_corners"]),
    exclude=st.booleans(),
)
def test_antialiased_interpolation_is_the_runtimes(size, made, mode, coordinates, exclude):
    assume(made != size)
    attributes = {
        "mode": mode, "antialias": 1, "coordinate_transformation_mode": coordinates, "exclude_outside": int(exclude),
    }  # fmt: skip
    sizes = {"s": np.array([1, 1, size, made])}
    expected = matrix_of_the_kernel(size, sizes, ["", "", "s"], **attributes)
    found = interpolation(size, made, made / size, mode=mode, coordinates=coordinates, rounding="", cubic=-0.75,
                          exclude=exclude, antialias=True)  # fmt: skip
    found = written_out(found)
    np.testing.assert_allclose(found, expected, atol=2e-5)


@examples(30)
@given(
    size=st.integers(2, 7),
    made=st.integers(1, 9),
    mode=st.sampled_from(["linear", "nearest", "cubic"]),
    start=st.sampled_from([-0.21, 0.03, 0.29]),
    end=st.sampled_from([0.61, 0.93, 1.31]),
)
def test_cropped_interpolation_is_the_runtimes(size, made, mode, start, end):
    region = np.array([0, 0, 0, start, 1, 1, 1, end], np.float32)
    assume(made != size)  # the runtime copies then, whatever the region
    places = (size - 1) * np.linspace(start, end, made) if made > 1 else np.array([(start + end) * (size - 1) / 2])
    ties = np.isclose(places % 1, 0.5, atol=1e-5).any()
    assume(mode != "nearest" or not ties)  # which of two is nearer is rounding there
    constants = {"r": region, "s": np.array([1, 1, size, made])}
    attributes = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize"}
    expected = matrix_of_the_kernel(size, constants, ["r", "", "s"], **attributes)
    found = interpolation(
        size, made, made / size, mode=mode, coordinates="tf_crop_and_resize", rounding="round_prefer_floor",
        cubic=-0.75, exclude=False, region=(float(np.float32(start)), float(np.float32(end))),
    )  # fmt: skip
    found = written_out(found)
    edges = np.isclose(found.sum(axis=1), 0) != np.isclose(expected.sum(axis=1), 0)
    assume(not edges.any())  # a place on the border itself, in float32 and float64
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_resize_that_keeps_the_aspect(policy, check_gradients, forward_model):
    nodes = [node("Resize", ["x", "", "", "s"], ["y"], mode="linear", keep_aspect_ratio_policy=policy, axes=[2, 3])]
    check_gradients(forward_model(nodes, {"x": random((1, 2, 3, 5))}, constants={"s": np.array([6, 7])}))


def test_resize_of_a_region(check_gradients, forward_model):
    nodes = [
        node("Resize", ["x", "r", "", "s"], ["y"], mode="linear", coordinate_transformation_mode="tf_crop_and_resize",
             extrapolation_value=3.0, axes=[2, 3])
    ]  # fmt: skip
    constants = {"r": np.array([0.1, 0.2, 0.8, 1.3]), "s": np.array([4, 6])}
    check_gradients(forward_model(nodes, {"x": random((1, 2, 5, 4))}, constants=constants))


def test_antialiased_resize(check_gradients, forward_model):
    nodes = [node("Resize", ["x", "", "", "s"], ["y"], mode="cubic", antialias=1)]
    check_gradients(forward_model(nodes, {"x": random((1, 2, 7, 6))}, constants={"s": np.array([1, 2, 3, 4])}))
