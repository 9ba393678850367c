"""Graphs inside of ops: what they read from outside, and that an Op holds them under any names."""

from __future__ import annotations

from dataclasses import replace

import onnx
import pytest
from onnx import parser

from planner.graph.core.subgraph import captured_names, obstacle
from planner.graph.files.protos import op_of, op_to_node

TEXT = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[4] x, bool c, float[4] w) => (float[4] y) {
  y = If (c) <
    then_branch = tb () => (float[4] t) {
      k = Add(x, w)
      t = If (c) <then_branch = a () => (float[4] u) { u = Add(k, v) }, else_branch = b () => (float[4] u2) { u2 = Neg(x) }>
    },
    else_branch = eb () => (float[4] e) { k = Mul(w, w)  e = Neg(k) }>
}
"""  # noqa: E501


@pytest.fixture
def node() -> onnx.NodeProto:
    return parser.parse_model(TEXT).graph.node[0]


def test_what_is_read_from_outside(node: onnx.NodeProto) -> None:
    assert captured_names(node) == ("w", "x", "c", "v")  # else_branch first; c is the inner If's condition, too


def test_inputs_are_followed_by_what_is_captured(node: onnx.NodeProto) -> None:
    op = op_of(node, "the if")
    assert op.inputs == ("c", "w", "x", "c", "v")
    assert op.has_graphs


def test_an_op_and_its_node_are_the_same(node: onnx.NodeProto) -> None:
    op = op_of(node, "the if")
    again = op_to_node(op)
    assert list(again.input) == ["c"]
    assert captured_names(again) == ("w", "x", "c", "v")
    assert op_of(again, "the if") == op


def test_equal_graphs_of_other_names_are_equal() -> None:
    first, second = (
        op_of(parser.parse_model(TEXT.replace("k", name)).graph.node[0], "the if").attributes for name in ("k", "other")
    )
    assert first == second
    assert hash(first) == hash(second)


def test_the_captured_may_be_called_otherwise(node: onnx.NodeProto) -> None:
    op = op_of(node, "the if")
    renamed = op_to_node(replace(op, inputs=("i0", "i1", "k", "i0", "t3")))
    assert captured_names(renamed) == ("i1", "k", "i0", "t3")
    onnx.checker.check_graph(
        onnx.helper.make_graph(
            [renamed],
            "g",
            [onnx.helper.make_tensor_value_info(name, 1, [4]) for name in ("i0", "i1", "k", "t3")],
            [onnx.helper.make_tensor_value_info("y", 1, [4])],
        ),
        _context(),
    )


def _context() -> onnx.checker.C.CheckerContext:
    context = onnx.checker.C.CheckerContext()
    context.ir_version, context.opset_imports = 10, {"": 21}
    return context


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        ("k = Add(x, w)", ""),
        ("k = RandomUniformLike(x)", "a graph inside of it draws random numbers (RandomUniformLike)"),
        ("k = Dropout(x)", ""),
        ("k = Dropout(x, w, c)", "a graph inside of it draws random numbers (Dropout)"),
        ("k = mine.Twice(x)", "a graph inside of it calls local function Twice"),
    ],
)
def test_what_cannot_run_on_every_worker(new: str, reason: str) -> None:
    text = TEXT.replace("k = Add(x, w)", new).replace('["" : 21]', '["" : 21, "mine" : 1]')
    said = obstacle(parser.parse_model(text).graph.node[0], [("mine", "Twice")])
    assert said.startswith(reason) if reason else said == ""
