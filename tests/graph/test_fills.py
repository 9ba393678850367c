"""Constants of one value: views in memory, ops in files."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper, parser

from planner.graph.core.model import Graph
from planner.graph.files.fills import fill_nodes, fills_of, is_fill, is_fill_node, is_large_fill
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import graph_from_proto
from stock_runtime import run

Read = Callable[..., Graph]

STEP = """g (int64[8, 1] rows, float[8, {width}] x) => (float[{rows}, {width}] y)
    <int64[2] shape = {{{rows}, {width}}}> {{
        zeros = ConstantOfShape {value} (shape)
        y = ScatterND <reduction = "add"> (zeros, rows, x)
    }}"""


@given(
    st.sampled_from([np.float32, np.float64, np.float16, np.int64, np.bool_, np.uint8]),
    st.lists(st.integers(1, 5), max_size=3),
    st.integers(0, 3),
)
def test_a_fill_is_read_as_it_was_written(dtype: type, shape: list[int], number: int) -> None:
    value = np.broadcast_to(np.array(number, dtype), shape)
    nodes = fill_nodes("x", value, "s")
    assert all(map(is_fill_node, nodes))
    (again,) = fills_of(nodes).values()
    assert is_fill(again)
    assert again.dtype == value.dtype
    np.testing.assert_array_equal(again, value)


def test_what_a_large_fill_is() -> None:
    large = np.broadcast_to(np.float32(0), (2**18,))
    assert is_large_fill(large, 13)
    assert not is_large_fill(large[:-1], 13)
    assert not is_large_fill(np.zeros(2**18, np.float32), 13), "its memory is taken already"


def test_a_fill_of_bfloat16_is_an_op_where_the_opset_has_it() -> None:
    two = numpy_helper.from_array(np.array([2], ml_dtypes.bfloat16))
    fill = helper.make_node("ConstantOfShape", ["shape"], ["twos"], value=two)
    text = (
        "g (bfloat16[1024, 1024] x) => (bfloat16[1024, 1024] y) <int64[2] shape = {1024, 1024}> { y = Add (x, twos) }"
    )
    model = parser.parse_model('<ir_version: 10, opset_import: ["" : 20]> ' + text)
    model.graph.node.insert(0, fill)
    graph = graph_from_proto(model)
    assert to_model(graph).ByteSize() < 2000
    assert to_model(graph_from_proto(to_model(graph))) == to_model(graph)
    assert is_fill(graph.constants["twos"])
    assert not is_large_fill(graph.constants["twos"], 19)


def test_stock_onnx_runtime_makes_a_fill_of_bfloat16() -> None:
    value = np.broadcast_to(np.array(2, ml_dtypes.bfloat16), (3, 4))
    wide = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, value.shape)
    graph = helper.make_graph([*fill_nodes("x", value, "s"), wide], "g", [], [y])
    (found,) = run(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), {}).values()
    np.testing.assert_array_equal(found, np.full((3, 4), 2, np.float32))


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_a_large_fill_is_no_larger_in_a_file(read: Read, value: float) -> None:
    graph = read(STEP.format(rows=2**10, width=2**10, value=f"<value = float[1] {{{value}}}>"))
    model = to_model(graph)
    assert model.ByteSize() < 2000
    again = graph_from_proto(model)
    assert again.ops == graph.ops
    assert again.folded == graph.folded == {"zeros"}
    assert is_fill(again.constants["zeros"])
    assert to_model(again) == model
    x = np.ones((8, 2**10), np.float32)
    (found,) = run(model, {"rows": np.arange(8)[:, None], "x": x}).values()
    assert found[:8].min() == 1 + value
    assert found[8:].max() == value


def test_a_fill_beyond_what_protobuf_holds(read: Read) -> None:
    """The zeros that the gradient of GPT-3's embedding is added to."""
    graph = read(STEP.format(rows=50257, width=12288, value=""))
    assert graph.tensors["zeros"].size_bytes > 2**31
    assert graph_from_proto(to_model(graph)).constants["zeros"].strides == (0, 0)


def test_a_weight_stays_a_weight(read: Read) -> None:
    """Architectures are shipped with their weights as fills with odd numbers; those are values like any other."""
    graph = read(STEP.format(rows=2**10, width=2**10, value="<value = float[1] {0.25}>"))
    again = graph_from_proto(to_model(graph))
    assert again.folded == graph.folded == frozenset()
    np.testing.assert_array_equal(again.constants["zeros"], graph.constants["zeros"])


def test_a_small_fill_is_an_initializer(read: Read) -> None:
    model = to_model(read(STEP.format(rows=16, width=4, value="")))
    assert [proto.name for proto in model.graph.initializer] == ["zeros"]
