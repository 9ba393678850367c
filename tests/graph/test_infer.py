"""Shapes where ONNX's own inference is wrong, held against what the runtime makes."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import stock_runtime
from planner.graph.folding.known_forms import sizes_for
from planner.graph.model import DType, Op, Tensor
from planner.graph.reading.from_onnx import graph_from_proto


@pytest.mark.parametrize("onesided", [None, 0, 1])
@pytest.mark.parametrize("windowed", [True, False])
def test_the_bins_of_a_spectrum(onesided: int | None, windowed: bool) -> None:
    stated = {} if onesided is None else {"onesided": onesided}
    reads = ["x", "step", "window"] if windowed else ["x", "step", "", "length"]
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("STFT", reads, ["y"], **stated)],
            "spectrum",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 16, 1])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [
                helper.make_tensor("step", TensorProto.INT64, [], [4]),
                helper.make_tensor("length", TensorProto.INT64, [], [8]),
                helper.make_tensor("window", TensorProto.FLOAT, [8], np.ones(8, np.float32)),
            ],
        ),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    made = stock_runtime.run(model, {"x": np.ones((2, 16, 1), np.float32)})["y"]
    assert graph_from_proto(model).tensors["y"].shape == made.shape


@pytest.mark.parametrize("scale", [5 / 3, 0.3, 1 / 3, 1.1, 2.0, 0.75])
@pytest.mark.parametrize("opset", [13, 21])
def test_a_resize_by_scales(scale: float, opset: int) -> None:
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")],
            "resize",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 9, 30])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [helper.make_tensor("scales", TensorProto.FLOAT, [4], [1, 1, scale, scale])],
        ),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=8,
    )
    made = stock_runtime.run(model, {"x": np.ones((1, 1, 9, 30), np.float32)})["y"]
    assert graph_from_proto(model).tensors["y"].shape == made.shape


def test_a_resize_of_which_the_runtime_says_two_sizes_states_its_sizes() -> None:
    tensors = {"x": Tensor("x", (9, 12), DType.FLOAT32)}
    op = Op("op", "Resize", ("x", "", "scales"), ("y",), (("mode", "linear"),))
    form = sizes_for(op, np.array([5 / 3, 0.75], np.float32), tensors)
    assert form is not None
    constants, (resize,) = form
    assert resize.inputs[:3] == ("x", "", "")
    assert constants[resize.inputs[3]].tolist() == [15, 9]
    assert sizes_for(op, np.array([1.5, 0.75], np.float32), tensors) is None
