"""From a file to verified steps, with tensors whose elements are less than a byte."""

from pathlib import Path

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper, numpy_helper

from planner import api


def test_weights_of_four_bits(tmp_path: Path) -> None:
    """Their tiles and fetches count a byte for each; cut in three, parts begin within a byte of the packed form."""
    rng = np.random.default_rng(0)
    kinds = [("x", TensorProto.FLOAT, [8, 63]), ("w", TensorProto.INT4, [63, 35])]
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["w", "s"], ["weights"]),
            helper.make_node("MatMul", ["x", "weights"], ["y"]),
            helper.make_node("QuantizeLinear", ["y", "s"], ["q"], output_dtype=TensorProto.INT4),
        ],
        "four bits",
        [helper.make_tensor_value_info(*kind) for kind in kinds],
        [helper.make_tensor_value_info(name, kind, [8, 35]) for name, kind in (("y", 1), ("q", TensorProto.INT4))],
        [numpy_helper.from_array(np.array(0.1, np.float32), "s")],
    )
    file = tmp_path / "model.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    file.write_bytes(model.SerializeToString())
    directory = tmp_path / "plan"
    result = api.plan(file, gpus=3, pin={"w": "S(0)", "weights": "S(1)", "y": "S(1)"}, out=directory)
    assert result.plan.moved_bytes == 63 * 35 - 21 * 35  # the weights from rows to columns, less what is there already
    inputs = tmp_path / "inputs.npz"
    weights = rng.integers(-8, 8, (63, 35)).astype(ml_dtypes.int4)
    np.savez(inputs, x=rng.normal(size=(8, 63)).astype(np.float32), w=weights)
    ran = api.run(directory, inputs=inputs, verify=True)
    assert ran.verified
    assert ran.moved_bytes == result.plan.moved_bytes
