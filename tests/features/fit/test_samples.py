"""A model that `tofu fit` makes is planned as its file is read when the plan runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

from planner.features.fit.samples import Wanted, batches_of_model
from planner.graph.reading.from_onnx import read_model
from planner.graph.to_onnx import write_model
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


def test_what_reading_makes_constants_of_is_no_op_of_the_plan(tmp_path: Path) -> None:
    forward, wishes = tmp_path / "model.onnx", TrainingOptions(loss="softmax_cross_entropy", optimizer="sgd")
    looked_up(forward)
    training = make(forward, wishes).graph
    write_model(training, tmp_path / "training.onnx")
    read = read_model(tmp_path / "training.onnx")
    assert len(read.ops) < len(training.ops), "the gradient of a look-up begins with zeros, which reading makes"
    source = source_of(forward, ReadOptions())
    stated = batches_of_model(Wanted(source, is_of_zoo=False, training=wishes, batch=None)).stated
    assert {op.name for op in stated.source.read().ops} == {op.name for op in read.ops}
