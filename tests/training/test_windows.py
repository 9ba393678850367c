"""Gradient rules of convolution and pooling; and the tests' own NumPy forms of them against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import helper

import stock_runtime
from drawn import random
from fast_suite import examples
from planner.errors import UnsupportedError
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import graph_from_proto
from planner.training.build import build_training_graph

node = helper.make_node


@st.composite
def windows(draw, *, pooling=False, channels=None):
    """A windowed op: its attributes, the sizes of its input, and for Conv its channels."""
    rank = draw(st.integers(1, 3))
    kernel = [draw(st.integers(1, 3)) for _ in range(rank)]
    attributes = {
        "kernel_shape": kernel,
        "strides": [draw(st.integers(1, 3)) for _ in range(rank)],
        "dilations": [draw(st.integers(1, 2)) for _ in range(rank)],
    }
    sizes = [draw(st.integers(3, 7 if rank < 3 else 5)) for _ in range(rank)]
    mode = draw(st.sampled_from(["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if mode == "NOTSET":
        attributes["pads"] = [draw(st.integers(0, width - 1 if pooling else 2)) for _ in range(2) for width in kernel]
        before, after = attributes["pads"][:rank], attributes["pads"][rank:]
    else:
        attributes["auto_pad"] = mode
        if mode.startswith("SAME"):
            attributes["dilations"] = [1] * rank
            # With longer strides the runtime moves the windows; such ops are refused.
            attributes["strides"] = [
                min(stride, width + 1) for stride, width in zip(attributes["strides"], kernel, strict=True)
            ]
        before = after = [0] * rank
    if not mode.startswith("SAME"):
        for size, k, d, first, last in zip(sizes, kernel, attributes["dilations"], before, after, strict=True):
            assume(size + first + last >= (k - 1) * d + 1)
    return attributes, sizes


def is_valid(forward):
    """Whether ONNX's inference finds a static shape with something in it."""
    try:
        graph = graph_from_proto(forward.model())
    except Exception:  # noqa: BLE001 -- whatever is wrong with a drawn case, it is no case
        return False
    return graph.tensors["y"].elements > 0


@examples(40)
@given(window=windows(), group=st.sampled_from([1, 1, 2, 3]), out=st.integers(1, 2), bias=st.booleans())
def test_conv(window, group, out, bias, check_gradients, forward_model):
    attributes, sizes = window
    parameters = {"x": random((2, group * 2, *sizes), 1), "w": random((group * out, 2, *attributes["kernel_shape"]), 2)}
    if bias:
        parameters["b"] = random((group * out,), 3)
    forward = forward_model([node("Conv", list(parameters), ["y"], group=group, **attributes)], parameters)
    assume(is_valid(forward))
    check_gradients(forward)


def test_depthwise_conv(check_gradients, forward_model):
    parameters = {"x": random((2, 3, 5, 6), 1), "w": random((6, 1, 3, 2), 2)}
    nodes = [node("Conv", ["x", "w"], ["y"], group=3, strides=[2, 1], pads=[1, 0, 0, 1])]
    check_gradients(forward_model(nodes, parameters))


@examples(30)
@given(window=windows(pooling=True), ceil=st.booleans())
def test_max_pool(window, ceil, check_gradients, forward_model):
    attributes, sizes = window
    if "auto_pad" not in attributes:
        attributes["ceil_mode"] = int(ceil)
    forward = forward_model([node("MaxPool", ["x"], ["y"], **attributes)], {"x": random((2, 2, *sizes), 1)})
    assume(is_valid(forward) and runs(forward))
    check_gradients(forward)


@examples(30)
@given(window=windows(pooling=True), ceil=st.booleans(), include=st.booleans())
def test_average_pool(window, ceil, include, check_gradients, forward_model):
    attributes, sizes = window
    attributes["count_include_pad"] = int(include)
    if "auto_pad" not in attributes:
        attributes["ceil_mode"] = int(ceil)
    forward = forward_model([node("AveragePool", ["x"], ["y"], **attributes)], {"x": random((2, 2, *sizes), 1)})
    assume(is_valid(forward) and runs(forward))
    check_gradients(forward)


def session_output(forward):
    model = narrowed(forward).model()
    data = {name: value.astype(np.float32) for name, value in forward.data.items()}
    return stock_runtime.run(model, data)["y"]


def narrowed(forward):
    parameters = {name: value.astype(np.float32) for name, value in forward.parameters.items()}
    return type(forward)(forward.nodes, parameters, forward.data, forward.constants)


def runs(forward):
    """Whether ONNX Runtime takes it; then it gives the shape that the graph has."""
    try:
        found = session_output(forward)
    except Exception:  # noqa: BLE001 -- the runtime's own limits
        return False
    assert found.shape == graph_from_proto(forward.model()).tensors["y"].shape
    return True


@examples(40)
@given(window=windows(pooling=True), op_type=st.sampled_from(["Conv", "MaxPool", "AveragePool"]), flag=st.booleans())
def test_own_forms_agree_with_the_runtime(window, op_type, flag, reference, forward_model):
    attributes, sizes = window
    parameters = {"x": random((2, 4, *sizes), 1).astype(np.float32)}
    if op_type == "Conv":
        parameters["w"] = random((6, 2, *attributes["kernel_shape"]), 2).astype(np.float32)
        attributes["group"] = 2
    elif "auto_pad" not in attributes:
        attributes["ceil_mode"] = int(flag)
    if op_type == "AveragePool":
        attributes["count_include_pad"] = int(not flag)
    forward = forward_model([node(op_type, list(parameters), ["y"], **attributes)], parameters)
    assume(is_valid(forward) and runs(forward))
    np.testing.assert_allclose(reference(forward.model(), {})["y"], session_output(forward), rtol=1e-4, atol=1e-5)


@examples(20)
@given(window=windows(), group=st.integers(1, 2), extra=st.booleans())
def test_own_transposed_form_agrees_with_the_runtime(window, group, extra, reference, forward_model):
    attributes, sizes = window
    attributes.pop("auto_pad", None)
    rank = len(sizes)
    if extra:
        attributes["output_padding"] = [stride - 1 for stride in attributes["strides"]]
    x = random((2, 2 * group, *sizes), 1).astype(np.float32)
    w = random((2 * group, 2, *attributes["kernel_shape"]), 2).astype(np.float32)
    forward = forward_model([node("ConvTranspose", ["x", "w"], ["y"], group=group, **attributes)], {"x": x, "w": w})
    assume(rank and is_valid(forward))
    np.testing.assert_allclose(reference(forward.model(), {})["y"], session_output(forward), rtol=1e-4, atol=1e-4)


@examples(25)
@given(
    window=windows(pooling=True), op_type=st.sampled_from(["Conv", "MaxPool", "AveragePool"]), group=st.integers(1, 2)
)
def test_the_runtime_takes_the_backward(window, op_type, group, reference, forward_model):
    attributes, sizes = window
    parameters = {"x": random((2, 4, *sizes), 1).astype(np.float32)}
    if op_type == "Conv":
        parameters["w"] = random((2 * group, 4 // group, *attributes["kernel_shape"]), 2).astype(np.float32)
        attributes["group"] = group
    forward = forward_model([node(op_type, list(parameters), ["y"], **attributes)], parameters)
    assume(is_valid(forward) and runs(forward))
    step = build_training_graph(forward.graph(), loss="mse", optimizer="sgd", learning_rate=1.0)
    model = to_model(step)
    target = {"target": random(step.tensors["y"].shape, 3).astype(np.float32)}
    found, wanted = stock_runtime.run(step, target), reference(model, target)
    assert found.keys() == wanted.keys() != set()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-4)


def test_global_average_pool(check_gradients, forward_model):
    step = check_gradients(forward_model([node("GlobalAveragePool", ["x"], ["y"])], {"x": random((2, 3, 4, 5), 1)}))
    assert "GlobalAveragePool" not in {op.op_type for op in step.ops}


def test_first_of_equal_maxima_gets_the_gradient(reference, forward_model):
    forward = forward_model([node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2])], {"x": np.ones((1, 1, 2, 2))})
    options = {"loss": "mse", "optimizer": "sgd", "learning_rate": 1.0}
    step = build_training_graph(forward.graph(), parameters=forward.trained(), **options)
    found = reference(to_model(step), {"target": np.zeros((1, 1, 1, 1))})
    np.testing.assert_array_equal(found["x"] if "x" in found else found["x.next"], [[[[-1, 1], [1, 1]]]])


LARGE = [
    {"kernel_shape": [5, 5]},
    {"kernel_shape": [4, 3], "pads": [2, 1, 1, 1]},
    {"kernel_shape": [2, 3], "strides": [2, 1], "dilations": [3, 2], "pads": [1, 0, 0, 1]},
    {"kernel_shape": [40, 40], "strides": [40, 40], "ceil_mode": 1},
]
"""Of windows on pictures of 5 by 5: filters of such a size for each channel would have more elements than these."""


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("attributes", LARGE)
def test_large_windows(op_type, attributes, check_gradients, forward_model):
    forward = forward_model([node(op_type, ["x"], ["y"], **attributes)], {"x": random((1, 3, 5, 5), 1)})
    step = check_gradients(forward)
    assert op_type != "MaxPool" or not {"Conv", "ConvTranspose"} & {op.op_type for op in step.ops}


def test_windows_that_are_larger_than_the_picture_with_their_padding(check_gradients, forward_model):
    """As a filter of ones this would be 1,280 by 1,280 numbers a channel."""
    attributes = {"kernel_shape": [1280, 1280], "strides": [1280, 1280], "ceil_mode": 1}
    graph = forward_model([node("AveragePool", ["x"], ["y"], **attributes)], {"x": random((1, 1280, 2, 2), 1)})
    first = graph.graph()
    step = build_training_graph(first, loss="mse", optimizer="sgd", learning_rate=1.0, parameters=graph.trained())
    assert max(step.tensors[name].elements for name in step.constants) <= 1280 * 4


def test_large_blocks_of_an_image(check_gradients, forward_model):
    nodes = [node("Col2Im", ["x", "image", "block"], ["y"], strides=[1, 2], dilations=[2, 1], pads=[0, 1, 0, 1])]
    constants = {"image": np.array([5, 5]), "block": np.array([3, 5])}
    step = check_gradients(forward_model(nodes, {"x": random((1, 30, 2), 1)}, constants=constants))
    assert "Conv" not in {op.op_type for op in step.ops}


def test_unclear_padding_is_refused(check_gradients, forward_model):
    nodes = [node("AveragePool", ["x"], ["y"], name="pool", kernel_shape=[1], strides=[3], auto_pad="SAME_UPPER")]
    with pytest.raises(UnsupportedError) as error:
        check_gradients(forward_model(nodes, {"x": random((1, 1, 3), 1)}))
    assert "op 'pool' (AveragePool): auto_pad SAME_UPPER" in error.value.facts[0]


def test_the_order_of_indices_does_not_matter(check_gradients, forward_model):
    nodes = [node("MaxPool", ["x"], ["y"], name="pool", kernel_shape=[2, 2], storage_order=1)]
    check_gradients(forward_model(nodes, {"x": random((1, 1, 4, 4), 1)}))


@examples(30)
@given(data=st.data())
def test_blocks_of_an_image(data, check_gradients, forward_model):
    dims = data.draw(st.integers(2, 3))
    block, strides, dilations, before, after, image = (
        [data.draw(st.integers(low, high)) for _ in range(dims)]
        for low, high in ((1, 3), (1, 3), (1, 2), (0, 2), (0, 2), (3, 6))
    )
    rooms = [
        size + b + a - (k - 1) * d - 1 for size, b, a, k, d in zip(image, before, after, block, dilations, strict=True)
    ]
    assume(min(rooms) >= 0)
    positions = [room // stride + 1 for room, stride in zip(rooms, strides, strict=True)]
    nodes = [
        node("Col2Im", ["x", "image", "block"], ["y"], strides=strides, dilations=dilations, pads=[*before, *after])
    ]
    parameters = {"x": random((2, 3 * int(np.prod(block)), int(np.prod(positions))), 1)}
    constants = {"image": np.array(image), "block": np.array(block)}
    check_gradients(forward_model(nodes, parameters, constants=constants))
