"""ONNX's default domain has two names, "" and ``ai.onnx``, and a model without its nodes need not import it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper

from planner import opdefs
from planner.errors import ModelError
from planner.graph.core.wellformed import every_node
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import graph_from_proto
from stock_runtime import run

BY_FUNCTION = """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
g (float[2, 3] x) => (float[2, 3] y) { h = local.twice(x)  y = Tanh(h) }
<domain: "local", opset_import: ["" : 21]> twice (a) => (b) { b = Add(a, a) }"""
_BRANCHES = """{
    y = If (c) <then_branch = t () => (float[2, 3] a) { a = Add(x, x) },
                else_branch = e () => (float[2, 3] b) { b = Neg(x) }>
}"""
BY_BRANCH = f"""<ir_version: 10, opset_import: ["" : 21]>
g (float[2, 3] x) => (float[2, 3] y) <bool c = {{1}}> {_BRANCHES}"""
AT_RUN_TIME = f"""<ir_version: 10, opset_import: ["" : 21]>
g (float[2, 3] x, bool c) => (float[2, 3] y) {_BRANCHES}"""
RENAMED = [("ai.onnx", ""), ("", "ai.onnx"), ("ai.onnx", "ai.onnx")]


def renamed(text: str, of_nodes: str, of_imports: str) -> ModelProto:
    model = onnx.parser.parse_model(text)
    inside = [node for function in model.functions for node in function.node]
    for node in every_node((*model.graph.node, *inside)):
        node.domain = node.domain or of_nodes
    for entry in (*model.opset_import, *(entry for function in model.functions for entry in function.opset_import)):
        entry.domain = entry.domain or of_imports
    return model


@pytest.mark.parametrize("text", [BY_FUNCTION, BY_BRANCH, AT_RUN_TIME], ids=["function", "branch", "at run time"])
@pytest.mark.parametrize(("of_nodes", "of_imports"), RENAMED, ids=["nodes", "imports", "both"])
def test_both_names_of_the_default_domain(text: str, of_nodes: str, of_imports: str) -> None:
    """Some of them stock ONNX Runtime refuses to load: it is asked about the model with the short name."""
    graph = graph_from_proto(renamed(text, of_nodes, of_imports), operators=opdefs.standard(repeats_unknown=True))
    assert {op.domain for op in graph.ops} == {""}
    feeds = {"x": np.array([[1, -2, 3], [-4, 5, -6]], np.float32), "c": np.array(True)}
    feeds = {name: feeds[name] for name in graph.inputs}
    np.testing.assert_array_equal(run(to_model(graph), feeds)["y"], run(onnx.parser.parse_model(text), feeds)["y"])


def test_a_file_may_import_it_under_both_names() -> None:
    """ONNX Runtime takes it so, too."""
    model = onnx.parser.parse_model(BY_FUNCTION)
    for imports in (model.opset_import, model.functions[0].opset_import):
        imports.append(helper.make_opsetid("ai.onnx", 21))
    model.graph.node[1].domain = "ai.onnx"
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(run(to_model(graph_from_proto(model)), {"x": x})["y"], np.tanh(2 * x))


def scaler(*more: onnx.NodeProto) -> ModelProto:
    node = helper.make_node("Scaler", ["x"], ["h"], domain="ai.onnx.ml", offset=[1.0], scale=[2.0])
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3]) for name in ("x", "h"))
    graph = helper.make_graph([node, *more], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 3)], ir_version=10)


def test_a_model_without_nodes_of_the_default_domain_need_not_import_it() -> None:
    graph = graph_from_proto(scaler())
    assert [(op.domain, op.op_type) for op in graph.ops] == [("ai.onnx.ml", "Scaler")]
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(run(to_model(graph), {"x": x})["h"], run(scaler(), {"x": x})["h"])


def test_a_model_with_such_nodes_must() -> None:
    with pytest.raises(ModelError, match="imports no version of ONNX's default operator domain"):
        graph_from_proto(scaler(helper.make_node("Relu", ["h"], ["y"])))
