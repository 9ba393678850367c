"""Defaults of local functions' attributes: what ONNX Runtime makes of the file is what the graph makes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import AttributeProto, FunctionProto, ModelProto, TensorProto, helper, numpy_helper, parser

from planner.errors import ModelError
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import to_model
from planner.graph.reading import defaults
from planner.graph.reading.from_onnx import graph_from_proto
from planner.graph.reading.inline import inline_functions
from planner.options.training import TrainingOptions
from planner.training.doors.make import make

X = (np.arange(24, dtype=np.float32).reshape(4, 6) - 11) / 7

THREES = numpy_helper.from_array(np.full(6, 3, np.float32))
HANDED_ON = """
<ir_version: 10, opset_import: ["" : 20, "loc" : 1]>
g (float[4,6] x) => (float[4,6] a, float[4,6] b, float[4,6] c, float[4,6] d, float[4,6] e, float[4,6] f) {
   a = loc.outer (x)
   b = loc.outer <alpha: float = 0.5> (x)
   c = loc.inner (x)
   d = loc.inner <alpha: float = 0.25> (x)
   e = loc.renamed (x)
   f = loc.outermost (x)
}
<domain: "loc", opset_import: ["" : 20]>
inner <alpha: float = 0.125> (x) => (y) { y = LeakyRelu <alpha: float = @alpha> (x) }
<domain: "loc", opset_import: ["" : 20, "loc" : 1]>
outer <alpha> (x) => (y) { y = loc.inner <alpha: float = @alpha> (x) }
<domain: "loc", opset_import: ["" : 20, "loc" : 1]>
renamed <beta: float = 0.75> (x) => (y) { y = loc.inner <alpha: float = @beta> (x) }
<domain: "loc", opset_import: ["" : 20, "loc" : 1]>
outermost <alpha> (x) => (y) { h = loc.outer <alpha: float = @alpha> (x)
 y = loc.renamed <beta: float = @alpha> (h) }
"""


def run(model: ModelProto, x: np.ndarray = X) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: list[np.ndarray] = session.run(None, {session.get_inputs()[0].name: x})
    return found


def reading(model: ModelProto) -> Graph:
    return graph_from_proto(model, state_pairs=())


def a_function(op_type: str, attribute: str, default: object, kind: int, *, reads: str = "x") -> ModelProto:
    """A model that calls a function without the attribute that one of its ops refers to."""
    node = helper.make_node(op_type, [reads] if reads else [], ["h"])
    node.attribute.append(AttributeProto(name=attribute, ref_attr_name=attribute, type=kind))
    function = FunctionProto(domain="loc", name="act", input=["x"], output=["y"])
    function.opset_import.append(helper.make_opsetid("", 20))
    function.node.extend([node] if reads else [node, helper.make_node("Mul", ["x", "h"], ["y"])])
    if reads:
        function.node[0].output[0] = "y"
    function.attribute_proto.append(helper.make_attribute(attribute, default))
    nodes = [helper.make_node("act", ["x"], ["y"], domain="loc")]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "y"]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("loc", 1)]
    graph = helper.make_graph(nodes, "g", [x], ends)
    return helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize(
    "model",
    [
        a_function("LeakyRelu", "alpha", 0.5, AttributeProto.FLOAT),
        a_function("Softmax", "axis", 0, AttributeProto.INT),
        a_function("Transpose", "perm", [0, 1], AttributeProto.INTS),
        a_function("Gelu", "approximate", "tanh", AttributeProto.STRING),
        a_function("Constant", "value", THREES, AttributeProto.TENSOR, reads=""),
        a_function("Constant", "value_floats", [1.0, 2, 3, 4, 5, 6], AttributeProto.FLOATS, reads=""),
    ],
    ids=["float", "int", "ints", "string", "tensor", "floats"],
)
def test_default_of_every_kind_counts(model: ModelProto) -> None:
    assert not model.graph.node[0].attribute
    assert np.array_equal(run(to_model(reading(model)))[0], run(model)[0])


def test_functions_hand_attributes_on_and_calls_override_defaults() -> None:
    model = parser.parse_model(HANDED_ON)
    expected = run(model)
    made = run(to_model(reading(model)))
    slopes = [float(array[0, 0] / X[0, 0]) for array in expected]
    assert slopes == pytest.approx([0.125, 0.5, 0.125, 0.25, 0.75, 0.125 * 0.75])
    assert list(map(np.array_equal, made, expected)) == [True] * 6
    assert "~" not in str(model), "the model is left alone"


def test_gradient_passes_what_the_default_says(tmp_path: Path) -> None:
    model = parser.parse_model("""
<ir_version: 10, opset_import: ["" : 20, "loc" : 1]>
g (float[4,6] x) => (float[4,6] y) { h = MatMul (x, w)
 y = loc.act (h) }
<domain: "loc", opset_import: ["" : 20]>
act <alpha: float = 0.5> (x) => (y) { y = LeakyRelu <alpha: float = @alpha> (x) }
""")
    w = -np.eye(6, dtype=np.float32)
    model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    file = tmp_path / "forward.onnx"
    file.write_bytes(model.SerializeToString())
    step = to_model(make(file, TrainingOptions(loss="mse", optimizer="sgd", lr=1.0)).graph)
    session = onnxruntime.InferenceSession(step.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {"x": X, "w": w}
    target = next(value.name for value in session.get_inputs() if value.name not in feeds)
    names = [value.name for value in session.get_outputs()]
    made = dict(zip(names, session.run(None, {**feeds, target: np.zeros_like(X)}), strict=True))
    h = X @ w
    y = np.where(h < 0, 0.5 * h, h)
    gradient = X.T @ (np.where(h < 0, 0.5, 1) * 2 * y / y.size)
    following = next(array for array in made.values() if array.shape == (6, 6))
    np.testing.assert_allclose(following, w - gradient, rtol=1e-5, atol=1e-6)


def test_defaults_are_bounded_before_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    model = parser.parse_model(HANDED_ON)
    with pytest.raises(ModelError, match="defaults of its local functions"):
        defaults.with_defaults(model, {defaults.function_key(f): f for f in model.functions}, 20)
    monkeypatch.setattr(defaults, "_MAX_FORMS", 1)
    with pytest.raises(ModelError, match="without attributes in more than 1 ways"):
        inline_functions(model)
