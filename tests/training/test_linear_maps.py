"""Linear maps along a dim keep to their windows: what is written grows with the dim, never with its square."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

import stock_runtime
from drawn import random
from fast_suite import examples
from planner.graph.core.bands import Band
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import graph_from_proto
from planner.training.build import build_training_graph
from written_out import written_out

node = helper.make_node


def ints(*values):
    return np.array(values, np.int64)


@given(
    shape=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    elements=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from([1.0, -1.0, 0.5])), max_size=20),
)
def test_elements_of_a_matrix(shape, elements):
    rows, columns = shape
    elements = [(row % rows, column % columns, weight) for row, column, weight in elements]
    matrix = np.zeros(shape)
    for row, column, weight in elements:
        matrix[row, column] += weight
    row, column, weight = (np.array([element[part] for element in elements]) for part in range(3))
    band = Band.of(shape, row.astype(np.int64), column.astype(np.int64), weight.astype(np.float64))
    np.testing.assert_array_equal(written_out(band), matrix)
    np.testing.assert_array_equal(written_out(band.transposed), matrix.T)
    assert band.width == max(1, (matrix != 0).sum(axis=1).max())
    assert band.is_identity == (rows == columns and np.array_equal(matrix, np.eye(rows)))


def size_of(step):
    return to_model(step).ByteSize()


def step_of(forward):
    return build_training_graph(forward.graph(), loss="mse", optimizer="sgd", learning_rate=1.0)


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_a_long_pad_makes_a_small_graph(mode, forward_model):
    """As speech models pad their samples, before and after."""
    parameters = {"w": random((1, 1, 43844), 1).astype(np.float32)}
    nodes = [node("Pad", ["w", "p"], ["y"], mode=mode)]
    step = step_of(forward_model(nodes, parameters, constants={"p": ints(0, 0, 200, 0, 0, 100)}))
    assert size_of(step) < 50_000 + 4 * 43844
    assert {"MatMul", "Gather"}.isdisjoint(op.op_type for op in step.ops)
    target = random((1, 1, 44144), 2).astype(np.float32)
    next_w = stock_runtime.run(to_model(step), {"target": target})["w.next"]
    padded = np.pad(parameters["w"], ((0, 0), (0, 0), (200, 100)), mode=mode)
    read = np.pad(np.arange(43844), (200, 100), mode=mode)
    slope = np.zeros(43844)
    np.add.at(slope, read, 2 * (padded - target)[0, 0].astype(np.float64) / padded.size)
    np.testing.assert_allclose((parameters["w"] - next_w)[0, 0], slope, atol=2e-6)


@examples(40)
@given(
    size=st.integers(1, 6), low=st.integers(-2, 9), high=st.integers(-2, 9),
    mode=st.sampled_from(["reflect", "edge", "wrap"]),
)  # fmt: skip
def test_borders_of_any_width(size, low, high, mode, check_gradients, forward_model):
    """Also those that go through the tensor more than once."""
    if size + min(low, 0) + min(high, 0) < 1:
        return
    forward = forward_model(
        [node("Pad", ["x", "p"], ["y"], mode=mode)], {"x": random((2, size, 2))},
        constants={"p": ints(0, low, 0, 0, high, 0)},
    )  # fmt: skip
    if min(low, high) < 0 and max(low, high) > 0:
        return  # whether the border is of what is cut is left open by ONNX
    check_gradients(forward)


@pytest.mark.parametrize(
    ("attributes", "most"),
    [
        ({"mode": "nearest"}, 0),
        ({"mode": "linear"}, 4),
        ({"mode": "linear", "coordinate_transformation_mode": "align_corners"}, 4),
        ({"mode": "cubic"}, 8),
        ({"mode": "linear", "antialias": 1}, 4),
    ],
)
def test_a_long_resize_makes_a_small_graph(attributes, most, forward_model):
    size = 20_000
    parameters = {"w": random((1, 1, size), 1).astype(np.float32)}
    constants = {"s": ints(1, 1, 2 * size)}
    step = step_of(forward_model([node("Resize", ["w", "", "", "s"], ["y"], **attributes)], parameters, {}, constants))
    assert size_of(step) < 50_000 + 4 * size + 12 * most * size


def test_local_response_of_many_channels(forward_model):
    channels = 3000
    parameters = {"w": random((1, channels, 2, 2), 1).astype(np.float32)}
    step = step_of(forward_model([node("LRN", ["w"], ["y"], size=5)], parameters))
    assert size_of(step) < 50_000 + 16 * channels


OLDER = [
    (opset, mode, coordinates, by)
    for opset in (11, 13, 16, 18)
    for mode in ("nearest", "linear")
    for coordinates in ("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel")
    for by in ("scales", "sizes", "sizes beside empty scales")
    if opset >= 13 or by != "sizes"
]


def older_model(opset, values, op_type, operands, **attributes):
    """An older Resize of x * w, its unused operands as exporters of that time write them."""
    x = values["w"].shape
    graph = helper.make_graph(
        [node("Mul", ["x", "w"], ["m"]), node(op_type, ["m", *operands], ["y"], **attributes)], "older",
        [helper.make_tensor_value_info("x", 1, x)], [helper.make_tensor_value_info("y", 1, None)],
        [onnx.numpy_helper.from_array(value, name) for name, value in values.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7)


def check_against_runtime(model, w, forms=None):
    """The loss is a square, so that a central difference of the runtime's own results is its slope."""
    x = random(w.shape, 5).astype(np.float32)

    def result(values):
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        next(t for t in changed.graph.initializer if t.name == "w").CopyFrom(onnx.numpy_helper.from_array(values, "w"))
        return stock_runtime.run(changed, {"x": x})["y"].astype(np.float64)

    whole = result(w)
    target = random(whole.shape, 6).astype(np.float32)
    step = build_training_graph(graph_from_proto(model), loss="mse", optimizer="sgd", learning_rate=1.0)
    found = stock_runtime.run(to_model(step), {"x": x, "target": target})
    np.testing.assert_allclose(found["y"], whole, atol=1e-6)
    slope = (w - found["w.next"]).astype(np.float64)
    for seed in (7, 8):
        direction = random(w.shape, seed).astype(np.float32)
        ahead, behind = (((result(w + sign * direction) - target) ** 2).mean() for sign in (1, -1))
        assert (slope * direction).sum() == pytest.approx((ahead - behind) / 2, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(("opset", "mode", "coordinates", "by"), OLDER)
def test_resize_of_older_opsets(opset, mode, coordinates, by):
    w = random((1, 2, 4, 5)).astype(np.float32)
    values = {"w": w, "none": np.zeros(0, np.float32), "s": np.array([1, 1, 2, 1.6], np.float32), "z": ints(1, 2, 8, 8)}
    operands = {"scales": ["none", "s"], "sizes": ["", "", "z"], "sizes beside empty scales": ["none", "none", "z"]}[by]
    rounding = {"nearest_mode": "floor"} if coordinates == "asymmetric" and mode == "nearest" else {}
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates, **rounding}
    check_against_runtime(older_model(opset, values, "Resize", operands, **attributes), w)


@pytest.mark.parametrize(
    ("scale", "coordinates", "rounding"),
    [
        (2.4, "asymmetric", "floor"),  # as PyTorch exports interpolate(scale_factor=2.4)
        (2.4, "asymmetric", "round_prefer_ceil"),
        (0.6, "asymmetric", "ceil"),
        (1.3, "half_pixel", "floor"),
        (0.7, "half_pixel_symmetric", "round_prefer_floor"),
        (1.05, "tf_half_pixel_for_nn", "ceil"),  # copied, for no dim changes its size
    ],
)
def test_the_nearest_element_by_a_scale_of_32_bits(scale, coordinates, rounding):
    w = random((1, 1, 14, 3)).astype(np.float32)
    stated = {"mode": "nearest", "coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
    values = {"w": w, "none": np.zeros(0, np.float32), "s": np.array([1, 1, scale, 1], np.float32)}
    check_against_runtime(older_model(19, values, "Resize", ["none", "s"], **stated), w)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(("op_type", "opset"), [("Upsample", 9), ("Resize", 10)])
def test_before_coordinates_could_be_chosen(op_type, opset, mode):
    w = random((1, 2, 4, 5)).astype(np.float32)
    values = {"w": w, "s": np.array([1, 1, 2, 3], np.float32)}
    check_against_runtime(older_model(opset, values, op_type, ["s"], mode=mode), w)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample_with_scales_as_attribute(mode):
    w = random((1, 2, 4, 5)).astype(np.float32)
    check_against_runtime(older_model(7, {"w": w}, "Upsample", [], mode=mode, scales=[1.0, 1.0, 2.0, 3.0]), w)


def test_coordinates_that_tensorflow_had_once():
    w = random((1, 2, 4, 5)).astype(np.float32)
    values = {"w": w, "none": np.zeros(0, np.float32), "s": np.array([1, 1, 2, 1.6], np.float32)}
    attributes = {"mode": "linear", "coordinate_transformation_mode": "tf_half_pixel_for_nn"}
    check_against_runtime(older_model(11, values, "Resize", ["none", "s"], **attributes), w)
