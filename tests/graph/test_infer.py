"""Shapes where ONNX's own inference is wrong, held against what the runtime makes."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import stock_runtime
from planner.graph.from_onnx import graph_from_proto


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
