"""Equal ops are lowered once; ops that are nearly equal are not equal."""

from pathlib import Path

import onnx
from onnx import NodeProto, TensorProto, helper

from planner import api


def written(tmp_path: Path, nodes: list[NodeProto], domain: str) -> list[list[NodeProto]]:
    """The nodes of each worker's functions, of a model of these ops, one after the other, on [8, 6]."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 6]) for name in "xaby"]
    graph = helper.make_graph(nodes, "g", values[:1], values[3:], value_info=values[1:3])
    imports = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=9), tmp_path / "m.onnx")
    api.plan(tmp_path / "m.onnx", gpus=2, out=tmp_path / "plan", unknown_ops="replicate")
    models = [onnx.load(tmp_path / "plan" / f"worker{worker}.onnx") for worker in range(2)]
    return [[node for function in model.functions for node in function.node] for model in models]


def test_two_ops_that_nothing_describes_stay_two(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Foo", ["x"], ["a"], name="foo", domain="my"),
        helper.make_node("Bar", ["a"], ["b"], name="bar", domain="my"),
        helper.make_node("Relu", ["b"], ["y"], name="relu"),
    ]
    first, second = written(tmp_path, nodes, "my")
    assert {node.op_type for node in first} == {node.op_type for node in second} == {"Foo", "Bar", "Relu"}


def test_a_zero_keeps_its_sign(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("LeakyRelu", ["x"], ["a"], name="first", alpha=0.0),
        helper.make_node("LeakyRelu", ["a"], ["b"], name="second", alpha=-0.0),
        helper.make_node("Relu", ["b"], ["y"], name="relu"),
    ]
    first, second = (
        {str(node.attribute[0].f) for node in found if node.op_type == "LeakyRelu"}
        for found in written(tmp_path, nodes, "")
    )
    assert first == second == {"0.0", "-0.0"}
