"""A softmax that is taken where it is a number, as PyTorch's exporter writes attention."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import stock_runtime
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import graph_from_proto

TRIANGLE = np.tri(4, dtype=bool)
node, value = helper.make_node, helper.make_tensor_value_info
SHAPE = [2, 4, 4]


def attention(allowed: np.ndarray, *, axis: int = -1, mask: str = "folded", scores: str = "product") -> ModelProto:
    """Softmax of a product and a mask; the mask is computed from constants, an initializer, or an input."""
    numbers = np.where(allowed, 0, -math.inf).astype(np.float32)
    initializers = {"zero": np.array(0, np.float32), "nothing": np.array(-math.inf, np.float32)}
    inputs = dict.fromkeys("qk", SHAPE)
    nodes = [node("MatMul", ["q", "k"], ["product"]), node("Add", ["product", "q"], ["sum"])]
    if mask == "folded":
        initializers["allowed"] = allowed
        nodes.append(node("Where", ["allowed", "zero", "nothing"], ["folded"]))
    elif mask == "weight":
        initializers["weight"] = numbers
    elif mask == "input":
        inputs["input"] = list(numbers.shape)
    masked = "masked" if mask else scores
    nodes += [node("Add", [scores, mask], ["masked"])] if mask else []
    nodes += [
        node("Softmax", [masked], ["p"], axis=axis),
        node("IsNaN", ["p"], ["guard"]),
        node("Where", ["guard", "zero", "p"], ["attention"]),
        node("MatMul", ["attention", "q"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "attention", [value(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [value("y", TensorProto.FLOAT, SHAPE)],
        [numpy_helper.from_array(array, name) for name, array in initializers.items()],
    )  # fmt: skip
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


@pytest.mark.parametrize(("allowed", "axis"), [(TRIANGLE, -1), (TRIANGLE[None, ::-1], 1), (TRIANGLE[:1], 2)])
def test_a_softmax_of_products_with_a_mask_without_empty_rows_is_a_number(allowed: np.ndarray, axis: int) -> None:
    model = attention(allowed, axis=axis)
    graph = graph_from_proto(model)
    assert not {"IsNaN", "Where"} & {op.op_type for op in graph.ops}
    drawn = np.random.default_rng(0)
    inputs = {name: drawn.standard_normal(SHAPE).astype(np.float32) for name in "qk"}
    np.testing.assert_array_equal(
        stock_runtime.run(to_model(graph), inputs)["y"], stock_runtime.run(model, inputs)["y"]
    )


def test_without_a_mask() -> None:
    assert "IsNaN" not in {op.op_type for op in graph_from_proto(attention(TRIANGLE, mask="")).ops}


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(attention(TRIANGLE & (np.arange(4) != 0)), id="an-empty-row"),
        pytest.param(attention(TRIANGLE & (np.arange(4)[:, None] != 3), axis=1), id="an-empty-column"),
        pytest.param(attention(TRIANGLE, mask="input"), id="a-mask-that-is-an-input"),
        pytest.param(attention(TRIANGLE, mask="weight"), id="a-mask-that-may-be-trained"),
        pytest.param(attention(TRIANGLE, scores="sum"), id="scores-with-an-input-added"),
        pytest.param(attention(TRIANGLE, mask="", scores="q"), id="scores-that-are-an-input"),
    ],
)
def test_else_it_stays(model: ModelProto) -> None:
    assert "IsNaN" in {op.op_type for op in graph_from_proto(model).ops}
