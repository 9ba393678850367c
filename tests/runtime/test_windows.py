"""Convolution and pooling in float64, against ONNX's reference evaluator and the stock runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from planner.graph.files.protos import op_of
from planner.runtime.judge.reference_ops import KERNELS

SHAPES_CONV: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 7, 6), (4, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 3, 7, 6), (4, 3, 3, 2), {"pads": [0, 1, 2, 0], "strides": [2, 1]}),
    ((1, 2, 9, 9), (3, 2, 3, 3), {"dilations": [2, 3], "pads": [2, 0, 1, 3]}),
    ((2, 4, 5, 5), (6, 2, 3, 3), {"group": 2, "strides": [2, 2], "pads": [1, 1, 0, 0]}),
    ((2, 4, 6), (4, 1, 3), {"group": 4}),
    ((1, 1, 4, 5, 6), (2, 1, 2, 3, 2), {"strides": [1, 2, 2]}),
    ((1, 2, 7, 8), (2, 2, 3, 4), {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    ((1, 2, 7, 8), (2, 2, 3, 4), {"auto_pad": "SAME_LOWER", "strides": [2, 3]}),
    ((1, 2, 7, 8), (2, 2, 3, 4), {"auto_pad": "VALID", "strides": [2, 3]}),
]
SHAPES_TRANSPOSED: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 4, 5), (3, 2, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 3, 4, 5), (3, 2, 3, 3), {"pads": [1, 0, 1, 2], "strides": [2, 3], "output_padding": [1, 2]}),
    ((1, 4, 4, 4), (4, 2, 2, 3), {"group": 2, "dilations": [2, 1], "strides": [3, 2]}),
    ((1, 2, 5), (2, 2, 3), {"strides": [4]}),
    ((1, 2, 4, 4), (2, 2, 3, 3), {"output_shape": [9, 8], "strides": [2, 2]}),
]
POOLS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 8, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((2, 3, 7, 9), {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1}),
    ((1, 2, 8, 7), {"kernel_shape": [3, 2], "strides": [3, 2], "pads": [1, 0, 0, 1], "ceil_mode": 1}),
    ((1, 2, 9), {"kernel_shape": [3], "dilations": [2], "pads": [1, 2]}),
    ((1, 2, 7, 6), {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
]


def both(op_type: str, arrays: list[np.ndarray], attributes: dict[str, Any], outputs: int = 1) -> tuple[Any, Any, Any]:
    """Ours in float64, the stock runtime's in float32, and the node."""
    names = [f"i{position}" for position in range(len(arrays))]
    made = [f"o{position}" for position in range(outputs)]
    node = helper.make_node(op_type, names, made, name="node", **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, list(array.shape))
            for name, array in zip(names, arrays, strict=True)
        ],
        [helper.make_empty_tensor_value_info(name) for name in made],
    )
    if outputs == 2:
        graph.output[1].CopyFrom(helper.make_tensor_value_info(made[1], TensorProto.INT64, None))
    graph.output[0].CopyFrom(helper.make_tensor_value_info(made[0], TensorProto.FLOAT, None))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    stock = session.run(None, {name: a.astype(np.float32) for name, a in zip(names, arrays, strict=True)})
    return KERNELS[op_type](op_of(node, "node"), arrays), stock, model


@pytest.mark.parametrize(("x", "w", "attributes"), SHAPES_CONV)
def test_conv(x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any]) -> None:
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal(shape) for shape in (x, w, w[:1])]
    ours, stock, model = both("Conv", arrays, attributes)
    np.testing.assert_allclose(ours[0], stock[0], rtol=1e-4, atol=1e-5)
    # The evaluator pads SAME_LOWER and VALID on the wrong side or not at all in some versions.
    if "auto_pad" not in attributes:
        theirs = ReferenceEvaluator(model).run(None, dict(zip(["i0", "i1", "i2"], arrays, strict=True)))
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("x", "w", "attributes"), SHAPES_TRANSPOSED)
def test_conv_transpose(x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any]) -> None:
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal(shape) for shape in (x, w)]
    ours, stock, _ = both("ConvTranspose", arrays, attributes)
    np.testing.assert_allclose(ours[0], stock[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("x", "attributes"), POOLS)
def test_max_pool_and_its_indices(x: tuple[int, ...], attributes: dict[str, Any]) -> None:
    array = np.random.default_rng(0).standard_normal(x)
    ours, stock, _ = both("MaxPool", [array], attributes, outputs=2)
    np.testing.assert_allclose(ours[0], stock[0], rtol=1e-6)
    np.testing.assert_array_equal(ours[1], stock[1])


def test_max_pool_takes_the_first_of_equals() -> None:
    ours, stock, _ = both("MaxPool", [np.zeros((1, 2, 4, 4))], {"kernel_shape": [2, 2], "strides": [2, 2]}, outputs=2)
    np.testing.assert_array_equal(ours[1], stock[1])


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize(("x", "attributes"), POOLS)
def test_average_pool(x: tuple[int, ...], attributes: dict[str, Any], include: int) -> None:
    array = np.random.default_rng(0).standard_normal(x)
    ours, stock, _ = both("AveragePool", [array], {**attributes, "count_include_pad": include})
    np.testing.assert_allclose(ours[0], stock[0], rtol=1e-5, atol=1e-6)
