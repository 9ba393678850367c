"""Rules of operators with attributes, drawn at random, against differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import helper

import stock_runtime
from drawn import random
from fast_suite import examples
from planner.graph.files.to_onnx import to_model
from planner.training.build import build_training_graph

node = helper.make_node
NUMBER = st.sampled_from([0.1, 0.3, 0.5, 0.9, 1.3, 2.0])


def ints(*values):
    return np.array(values, np.int64)


def drawn(attributes: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=attributes)


@examples(40)
@given(data=st.data(), seed=st.integers(0, 999))
def test_activations(data, seed, check_gradients, forward_model):
    """Of numbers of two decimals and a bit: away from the kinks, which are at sums of those that are drawn."""
    op_type, names, opset = data.draw(
        st.sampled_from([
            ("Elu", ("alpha",), 21), ("Gelu", (), 21), ("HardSigmoid", ("alpha", "beta"), 21),
            ("HardSwish", (), 21), ("LeakyRelu", ("alpha",), 21), ("Mish", (), 22), ("Selu", ("alpha", "gamma"), 21),
            ("Shrink", ("bias", "lambd"), 21), ("Softplus", (), 21), ("Softsign", (), 21), ("Swish", ("alpha",), 24),
            ("ThresholdedRelu", ("alpha",), 21), ("Abs", (), 21), ("Erf", (), 21), ("Reciprocal", (), 21),
        ])
    )  # fmt: skip
    attributes = data.draw(drawn(dict.fromkeys(names, NUMBER)))
    if op_type == "Gelu":
        attributes = data.draw(drawn({"approximate": st.sampled_from(["none", "tanh"])}))
    x = np.round(2 * random((3, 5), seed), 1) + 0.0371
    check_gradients(forward_model([node(op_type, ["x"], ["y"], **attributes)], {"x": x}, opset=opset), tolerance=1e-5)


SHAPE = (2, 4, 6)
AXIS = st.integers(-3, 2)


def _trilu(draw: st.DrawFn) -> Any:
    return node("Trilu", ["x", "k"], ["y"], upper=draw(st.integers(0, 1))), {"k": np.array(draw(st.integers(-4, 4)))}


def _tile(draw: st.DrawFn) -> Any:
    return node("Tile", ["x", "r"], ["y"]), {"r": ints(*(draw(st.integers(1, 3)) for _ in SHAPE))}


def _top_k(draw: st.DrawFn) -> Any:
    attributes = {"axis": draw(AXIS), "largest": draw(st.integers(0, 1))}
    return node("TopK", ["x", "k"], ["y", "i"], **attributes), {"k": ints(draw(st.integers(1, 2)))}


def _reverse_sequence(draw: st.DrawFn) -> Any:
    time = draw(st.integers(0, 1))
    lengths = ints(*(draw(st.integers(1, SHAPE[time])) for _ in range(SHAPE[1 - time])))
    return node("ReverseSequence", ["x", "l"], ["y"], time_axis=time, batch_axis=1 - time), {"l": lengths}


def _gather(draw: st.DrawFn) -> Any:
    axis = draw(AXIS)
    index = draw(st.lists(st.integers(-SHAPE[axis], SHAPE[axis] - 1), min_size=1, max_size=6))
    return node("Gather", ["x", "i"], ["y"], axis=axis), {"i": np.array(index)}


def _gather_elements(draw: st.DrawFn) -> Any:
    axis = draw(st.integers(0, 2))  # the reference evaluator takes no other
    shape = list(SHAPE)
    shape[axis] = draw(st.integers(1, 5))
    size = SHAPE[axis]
    return node("GatherElements", ["x", "i"], ["y"], axis=axis), {
        "i": np.random.default_rng(draw(st.integers(0, 99))).integers(-size, size, shape)
    }


def _split(draw: st.DrawFn) -> Any:
    axis = draw(AXIS)
    first = draw(st.integers(1, SHAPE[axis] - 1))
    return node("Split", ["x", "s"], ["y", "z"], axis=axis), {"s": ints(first, SHAPE[axis] - first)}


def _lp_normalization(draw: st.DrawFn) -> Any:
    return node("LpNormalization", ["x"], ["y"], **draw(drawn({"axis": AXIS, "p": st.integers(1, 2)}))), {}


def _softmax(draw: st.DrawFn) -> Any:
    op_type = draw(st.sampled_from(["Softmax", "LogSoftmax"]))
    return node(op_type, ["x"], ["y"], **draw(drawn({"axis": AXIS}))), {}


def _cum_sum(draw: st.DrawFn) -> Any:
    attributes = draw(drawn({"exclusive": st.integers(0, 1), "reverse": st.integers(0, 1)}))
    return node("CumSum", ["x", "a"], ["y"], **attributes), {"a": np.array(draw(AXIS))}


def _pad(draw: st.DrawFn) -> Any:
    mode = draw(st.sampled_from(["constant", "edge", "reflect", "wrap"]))
    least = -1 if mode == "constant" else 0
    pads = [draw(st.integers(least, 1)) for _ in range(6)]
    assume(pads[0] + pads[3] > -2)  # or nothing would be left of two elements
    return node("Pad", ["x", "p"], ["y"], mode=mode), {"p": ints(*pads)}


@pytest.mark.parametrize(
    "make",
    [_trilu, _tile, _top_k, _reverse_sequence, _gather, _gather_elements, _split, _lp_normalization, _softmax,
     _cum_sum, _pad],
)  # fmt: skip
@examples(32)
@given(data=st.data())
def test_of_one_operand(make: Callable[..., Any], data, check_gradients, forward_model):
    made, constants = data.draw(st.composite(make)())
    check_gradients(forward_model([made], {"x": random(SHAPE)}, constants=constants), tolerance=1e-5)


@examples(15)
@given(data=st.data())
def test_of_images(data, check_gradients, forward_model):
    op_type = data.draw(st.sampled_from(["LRN", "LpPool", "GlobalLpPool", "DepthToSpace", "SpaceToDepth"]))
    attributes: dict[str, Any] = {}
    shape = (1, 4, 4, 6)
    match op_type:
        case "LRN":
            attributes = {"size": data.draw(st.integers(1, 5)), **data.draw(drawn({"alpha": NUMBER, "beta": NUMBER}))}
            attributes |= data.draw(drawn({"bias": NUMBER}))
        case "LpPool":
            kernel = [data.draw(st.integers(1, 3)) for _ in range(2)]
            attributes = {
                "kernel_shape": kernel,
                "strides": [data.draw(st.integers(1, 3)) for _ in range(2)],
                "pads": [data.draw(st.integers(0, width - 1)) for _ in range(2) for width in kernel],
                "p": data.draw(st.integers(1, 3)),
            }
        case "GlobalLpPool":
            attributes = data.draw(drawn({"p": st.integers(1, 3)}))
        case "DepthToSpace":
            attributes = {"blocksize": 2, **data.draw(drawn({"mode": st.sampled_from(["DCR", "CRD"])}))}
        case _:
            attributes = {"blocksize": data.draw(st.sampled_from([1, 2]))}
            assume(attributes["blocksize"] == 2 or op_type == "SpaceToDepth")
    check_gradients(forward_model([node(op_type, ["x"], ["y"], **attributes)], {"x": random(shape)}), tolerance=1e-5)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.7])
def test_celu(alpha, forward_model, reference):
    """It is of float32 alone: held to its derivative, e^(x/alpha) below 0."""
    x = np.array([-3, -1, -0.2, 0, 0.4, 2], np.float32)
    forward = forward_model([node("Celu", ["x"], ["y"], alpha=alpha)], {"x": x})
    step = build_training_graph(forward.graph(), loss="mse", optimizer="sgd", learning_rate=1.0)
    found = reference(to_model(step), {"target": np.zeros(6, np.float32)})
    y = np.where(x > 0, x, alpha * np.expm1(x / alpha))
    expected = 2 * y / 6 * np.where(x > 0, 1, np.exp(x / alpha))
    np.testing.assert_allclose(x - found["x.next"], expected, atol=1e-6)


def test_max_unpool(check_gradients, forward_model):
    """At the places that MaxPool found; ONNX counts them through the whole tensor."""
    indices = np.array([[[[1, 7], [8, 14]]], [[[16, 19], [25, 31]]]])
    nodes = [node("MaxUnpool", ["x", "i"], ["y"], kernel_shape=[2, 2], strides=[2, 2])]
    check_gradients(forward_model(nodes, {"x": random((2, 1, 2, 2))}, constants={"i": indices}))


@pytest.mark.parametrize(("size", "pads"), [([2, 1, 5, 6], []), ([2, 1, 3, 3], [1, 1, 0, 0]), ([2, 1, 4, 4], [])])
def test_max_unpool_of_a_stated_size(size, pads, forward_model):
    """Places count through the output that is stated, as ONNX Runtime has it; so y is x there, and dx is 2 x / n."""
    places = np.random.default_rng(5).permutation(np.prod(size))[:8].reshape(2, 1, 2, 2)
    x, stated = random((2, 1, 2, 2), dtype=np.float32), {"pads": pads} if pads else {}
    nodes = [node("MaxUnpool", ["x", "i", "s"], ["y"], kernel_shape=[2, 2], strides=[2, 2], **stated)]
    forward = forward_model(nodes, {"x": x}, constants={"i": places, "s": ints(*size)})
    expected = np.zeros(size, np.float32)
    expected.flat[places.ravel()] = x.ravel()
    np.testing.assert_array_equal(stock_runtime.run(forward.model(), {})["y"], expected)
    graph = forward.graph()
    assert graph.tensors["y"].shape == tuple(size)
    step = build_training_graph(graph, loss="mse", optimizer="sgd", learning_rate=1.0)
    feeds = {**step.initial, "target": np.zeros(size, np.float32)}
    found = stock_runtime.run(step, {name: feeds[name] for name in step.inputs})
    np.testing.assert_allclose(x - found["x.next"], 2 * x / np.prod(size), atol=1e-6)


def test_cast_like(check_gradients, forward_model):
    nodes = [node("CastLike", ["x", "like"], ["c"]), node("CastLike", ["c", "x"], ["y"])]
    forward = forward_model(nodes, {"x": random((3, 4)).astype(np.float32).astype(float)},
                            constants={"like": np.array([1], np.float32)})  # fmt: skip
    check_gradients(forward, tolerance=5e-2)
