"""What is computed from what: an operand and a result that are left out are no tensor in common."""

from __future__ import annotations

import onnx

from planner.graph.core.dependence import computed_from, leading_to, live_ops
from planner.graph.core.emitter import Emitter
from planner.graph.core.model import DType, Op, Tensor
from planner.graph.reading.from_onnx import graph_from_proto

TEXT = """<ir_version: 10, opset_import: ["" : 21]>
g (float[4, 2, 3] x, float[4] z, float[1, 8, 3] w, float[1, 8, 2] r) => (float[1, 2, 2] h, float[4] y) <float m = {1}> {
    , h = LSTM <hidden_size = 2> (x, w, r)
    y = Clip (z, , m)
}"""


def test_what_is_left_out_leads_nowhere() -> None:
    graph = graph_from_proto(onnx.parser.parse_model(TEXT), state_pairs=())
    assert "" in {name for op in graph.ops for name in op.outputs}
    assert "" in {name for op in graph.ops for name in op.inputs}
    assert leading_to(graph, ["y"]) == {"y", "z", "m"}
    assert leading_to(graph, ["h"]) == {"h", "x", "w", "r"}
    assert computed_from(graph, ["x"]) == {"x", "h"}
    assert computed_from(graph, ["z"]) == {"z", "y"}
    assert computed_from(graph, ()) == frozenset()


def test_live_ops_are_those_that_lead_to_a_tensor_in_their_order() -> None:
    graph = graph_from_proto(onnx.parser.parse_model(TEXT), state_pairs=())
    assert [op.op_type for op in live_ops(graph.ops, ["y", "h"])] == ["LSTM", "Clip"]
    assert [op.op_type for op in live_ops(graph.ops, ["", "y"])] == ["Clip"]
    chain = [Op(name, "Neg", (source,), (name,)) for source, name in ("ab", "bc", "cd")]
    assert [op.name for op in live_ops(chain, ["d"])] == ["b", "c", "d"]
    assert [op.name for op in live_ops(chain, ["d"], stops=("b",))] == ["c", "d"]


def test_an_emitter_names_several_results_of_one_op() -> None:
    emitter = Emitter("body/", {"x": Tensor("x", (4, 6), DType.FLOAT32)}, {}, 21)
    parts = emitter.split("x", (2, 4), 1)
    assert parts == ("body/split", "body/split.2")
    assert [emitter.shape(part) for part in parts] == [(4, 2), (4, 4)]
    assert [op.name for op in emitter.ops] == ["body/split"]
