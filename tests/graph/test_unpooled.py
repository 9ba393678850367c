"""A MaxUnpool of what a pool found is cut by rows, as the pool is: no value leaves its own window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from planner import api
from planner.graph.reading.from_onnx import graph_from_proto
from stock_runtime import run

node = helper.make_node


def model(shape: tuple[int, ...], kernel: tuple[int, ...], stated: tuple[int, ...] | None = None, **pool: Any) -> Any:
    """A pool, and what it found put back where it was; with a stated size, or without."""
    windows = {"kernel_shape": kernel, "strides": kernel, **{name: pool[name] for name in ("pads",) if name in pool}}
    graph = helper.make_graph(
        [
            node("MaxPool", ["x"], ["p", "i"], **{**windows, **pool}),
            node("Neg", ["p"], ["n"]),
            node("MaxUnpool", ["n", "i"] + ["s"] * (stated is not None), ["y"], **windows),
        ], "unpool", [helper.make_tensor_value_info("x", 1, shape)], [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.array(stated or (), np.int64), "s")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(
    ("proto", "is_by_windows"),
    [
        (model((2, 3, 8), (2,)), True),
        (model((2, 3, 6, 9), (2, 3)), True),
        (model((1, 2, 4, 6, 4), (2, 3, 2)), True),
        (model((2, 3, 6, 9), (2, 3), (2, 3, 6, 9)), True),
        (model((2, 3, 7, 9), (2, 3), (2, 3, 7, 9)), False),
        (model((1, 1, 4, 4), (2, 2), (1, 1, 5, 5)), False),
        (model((2, 3, 6, 6), (2, 2), storage_order=1), False),
        (model((2, 3, 6, 6), (2, 2), pads=(1, 1, 1, 1)), False),
    ],
)  # fmt: skip
def test_values_are_where_the_pool_found_them(proto: onnx.ModelProto, is_by_windows: bool) -> None:
    graph = graph_from_proto(proto)
    assert ("MaxUnpool" not in {op.op_type for op in graph.ops}) == is_by_windows
    x = np.random.default_rng(0).integers(0, 4, graph.tensors["x"].shape).astype(np.float32)
    np.testing.assert_array_equal(run(graph, {"x": x})["y"], run(proto, {"x": x})["y"])


@pytest.mark.parametrize("workers", [2, *(pytest.param(workers, marks=pytest.mark.slow) for workers in (3, 4))])
@pytest.mark.parametrize("trains", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_rows_stay_where_they_are(workers: int, *, trains: bool, tmp_path: Path) -> None:
    proto, random = model((1, 4, 48, 16), (2, 2)), np.random.default_rng(0)
    nodes = [node("Conv", ["g", "w"], ["x"], pads=[1] * 4), *proto.graph.node, node("Conv", ["y", "v"], ["o"])]
    weights = [
        numpy_helper.from_array(random.normal(size=shape).astype(np.float32), name)
        for name, shape in {"w": (4, 4, 3, 3), "v": (2, 4, 1, 1)}.items()
    ]
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("g", 1, [1, 4, 48, 16])],
        [helper.make_tensor_value_info("o", 1, [1, 2, 48, 16])], weights,
    )  # fmt: skip
    file = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=proto.opset_import, ir_version=10), file)
    if trains:
        api.grad(file, loss="mse", optimizer="sgd", lr=0.1, output=tmp_path / "step.onnx")
        file = tmp_path / "step.onnx"
    result = api.plan(file, gpus=workers, pin={"x": "S(2)"}, out=tmp_path / "p")
    kernels = 2 * (workers - 1) * 4 * (4 * 9 * 4 + 2 * 4) * trains
    assert result.plan.moved_bytes <= (workers - 1) * 2 * 4 * 16 * 4 + kernels + 64 * trains
    assert api.run(tmp_path / "p", verify=True).verified
    assert api.prove(tmp_path / "p").is_proven
