"""Models of old opsets give, when they have been read, what ONNX Runtime's own old kernels give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from planner import opdefs
from planner.errors import UnsupportedError
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import graph_from_proto
from stock_runtime import NO_ERRORS, run

Constants = dict[str, np.ndarray]


def scales(*values: float) -> Constants:
    return {"scales": np.array(values, np.float32)}


BOXES = {
    "rois": np.array([[0, 0, 5, 6], [1, 1, 7, 4]], np.float32),
    "indices": np.zeros(2, np.int64),
}
CASES: list[tuple[str, int, tuple[int, ...], Constants, dict[str, Any]]] = [
    *(("Hardmax", opset, (2, 3, 4), {}, {"axis": axis}) for opset in (7, 11, 12) for axis in (0, 1, 2)),
    ("Hardmax", 9, (2, 3, 4), {}, {}),
    ("Softmax", 9, (2, 3, 4), {}, {}),
    ("LogSoftmax", 9, (2, 3, 4), {}, {"axis": 0}),
    ("Upsample", 7, (1, 2, 7, 5), {}, {"scales": [1.0, 1.0, 1.7, 2.3]}),
    ("Upsample", 8, (1, 2, 7, 5), {}, {"scales": [1.0, 1.0, 1.7, 2.3], "mode": "linear"}),
    ("Upsample", 9, (1, 2, 7, 5), scales(1, 1, 1.7, 2.3), {"mode": "nearest"}),
    ("Upsample", 9, (1, 2, 7, 5), scales(1, 1, 2, 2), {"mode": "linear"}),
    ("Resize", 10, (1, 2, 7, 5), scales(1, 1, 1.7, 2.3), {}),
    ("Resize", 10, (1, 2, 7, 9), scales(1, 1, 0.6, 0.4), {"mode": "nearest"}),
    ("Resize", 10, (1, 2, 7, 9), scales(1, 1, 0.6, 1.4), {"mode": "linear"}),
    *(("RoiAlign", opset, (1, 2, 8, 8), BOXES, {"output_height": 3, "output_width": 3, "sampling_ratio": 2})
      for opset in (10, 12)),
]  # fmt: skip


def older(op_type: str, opset: int, shape: tuple[int, ...], constants: Constants, stated: dict[str, Any]) -> ModelProto:
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x", *constants], ["between"], name="old", **stated),
         helper.make_node("Neg", ["between"], ["y"])],
        "old",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )  # fmt: skip
    graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7)


def in_a_branch(model: ModelProto) -> ModelProto:
    """The same, in a branch that is taken; in the other one zeros of the data's shape."""
    inner = helper.make_graph(list(model.graph.node), "then", [], list(model.graph.output))
    zeros = helper.make_graph([helper.make_node("Sub", ["x", "x"], ["none"]), helper.make_node("Neg", ["none"], ["z"])],
                              "else", [], [helper.make_empty_tensor_value_info("z")])  # fmt: skip
    zeros.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    choice = helper.make_node("If", ["flag"], ["y"], then_branch=inner, else_branch=zeros)
    flag = numpy_helper.from_array(np.array(True), "flag")
    graph = helper.make_graph([choice], "branches", list(model.graph.input), list(model.graph.output),
                              [*model.graph.initializer, flag])  # fmt: skip
    return helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=7)


@pytest.mark.parametrize(("op_type", "opset", "shape", "constants", "stated"), CASES)
def test_it_means_what_it_meant_in_a_branch(
    op_type: str, opset: int, shape: tuple[int, ...], constants: Constants, stated: dict[str, Any]
) -> None:
    model = older(op_type, opset, shape, constants, stated)
    fed = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    expected = run(model, fed, log_level=NO_ERRORS)["y"]
    graph = graph_from_proto(in_a_branch(model), operators=opdefs.standard())
    found = run(to_model(graph), fed, log_level=NO_ERRORS)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("op_type", "opset", "shape", "constants", "stated"), CASES)
def test_it_means_what_it_meant(
    op_type: str, opset: int, shape: tuple[int, ...], constants: Constants, stated: dict[str, Any]
) -> None:
    model = older(op_type, opset, shape, constants, stated)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    expected = run(model, {"x": x}, log_level=NO_ERRORS)["y"]
    graph = graph_from_proto(model)
    assert graph.opset >= 13
    found = run(to_model(graph), {"x": x}, log_level=NO_ERRORS)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_what_the_newer_resize_cannot_say_is_refused() -> None:
    model = older("Resize", 10, (1, 2, 7, 9), scales(1, 1, 0.6, 1.4), {"mode": "nearest"})
    with pytest.raises(UnsupportedError, match=r"op 'old' .* above 1 for one dim and below 1 for another") as error:
        graph_from_proto(model)
    assert error.value.hint == "export the model again at opset 21"
    model.graph.initializer.pop()
    model.graph.input.append(helper.make_tensor_value_info("scales", TensorProto.FLOAT, [4]))
    with pytest.raises(UnsupportedError, match="whose scales are not known"):
        graph_from_proto(model)
