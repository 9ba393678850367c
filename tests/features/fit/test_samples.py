"""A training graph that `tofu grad` made is looked at in other batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

from planner import api
from planner.features.fit.samples import batches_of_model
from planner.graph.reading.from_onnx import read_model
from planner.options import ReadOptions
from planner.options.training import TrainingOptions
from planner.planning.request import source_of
from planner.training.doors.make import make


def looked_up(path: Path) -> None:
    """Writes a network that begins with rows of a table, whose gradient begins with zeros."""
    draw = np.random.default_rng(0).normal
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "x"], ["rows"], name="rows"),
            helper.make_node("Gemm", ["rows", "w"], ["y"], name="scores"),
        ],
        "looked_up",
        [helper.make_tensor_value_info("x", TensorProto.INT64, [8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 5])],
        [
            numpy_helper.from_array(draw(size=(40, 6)).astype(np.float32), "table"),
            numpy_helper.from_array(draw(size=(6, 5)).astype(np.float32), "w"),
        ],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)


def test_what_reading_makes_constants_of_is_no_op_at_any_batch(tmp_path: Path) -> None:
    forward, model = tmp_path / "model.onnx", tmp_path / "training.onnx"
    looked_up(forward)
    api.grad(forward, loss="softmax_cross_entropy", optimizer="sgd", freeze=["w"], output=model)
    read = read_model(model)
    made = make(forward, TrainingOptions(loss="softmax_cross_entropy", optimizer="sgd", freeze=("w",))).graph
    assert len(read.ops) < len(made.ops), "the gradient of a look-up begins with zeros, which reading makes"
    batches = batches_of_model(source_of(model, ReadOptions()), None)
    assert batches.samples is not None
    assert batches.samples.given == 8
    larger = batches.samples.at(16).read()
    assert [op.name for op in larger.ops] == [op.name for op in read.ops]
    assert larger.tensors["x"].shape == (16,)
    batches.at(16)  # is of the same ops as the file, or it would be refused
