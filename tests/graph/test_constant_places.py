"""A Gather of constant places is Slices where the places are few affine pieces, and costs what Slices cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from fast_suite import examples
from planner import api
from planner.graph.reading.from_onnx import graph_from_proto
from stock_runtime import run

SIZE = 24
PLACES = {
    "every second": np.arange(0, SIZE, 2),
    "backwards": np.arange(SIZE)[::-1],
    "from the end": -np.arange(1, 5),
    "nearest": np.arange(2 * SIZE) // 2,
    "one, repeated": np.full(5, 7),
    "halves swapped": np.r_[12:24, 0:12],
    "shifted": np.r_[23, 0:23],
    "clamped": np.clip(np.arange(-2, 26), 0, 23),
    "windows": np.arange(0, 20, 2)[:, None] + np.arange(3),
    "windows, turned": np.arange(3)[:, None] + np.arange(0, 20, 2),
    "dilated windows": np.arange(10)[:, None] + 2 * np.arange(3),
    "blocks": np.arange(SIZE).reshape(2, 3, 4),
}
node = helper.make_node


def gather(places: np.ndarray, axis: int, op_type: str = "Gather") -> onnx.ModelProto:
    shape = [6, 6, 6]
    shape[axis] = SIZE
    attributes = {"axis": axis} if op_type == "Gather" else {}
    graph = helper.make_graph(
        [node(op_type, ["x", "i"], ["y"], **attributes)], "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)], [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(places.astype(np.int64), "i")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def op_types_where_alike(model: onnx.ModelProto) -> set[str]:
    """The ops that the model is read as, which make what it makes."""
    graph = graph_from_proto(model)
    x = np.random.default_rng(0).normal(size=graph.tensors["x"].shape).astype(np.float32)
    np.testing.assert_array_equal(run(graph, {"x": x})["y"], run(model, {"x": x})["y"])
    return {op.op_type for op in graph.ops}


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", PLACES)
def test_few_pieces_are_slices(name: str, axis: int) -> None:
    assert "Gather" not in op_types_where_alike(gather(PLACES[name], axis))


def test_places_without_order_stay_a_lookup() -> None:
    assert op_types_where_alike(gather(np.random.default_rng(1).integers(0, SIZE, SIZE), 0)) == {"Gather"}


def test_a_grid_of_places_is_slices_along_each_dim() -> None:
    grid = np.stack(np.meshgrid(np.arange(2 * SIZE) // 2, np.arange(5, -1, -1), indexing="ij"), -1)
    assert "GatherND" not in op_types_where_alike(gather(grid, 0, "GatherND"))
    assert op_types_where_alike(gather(grid[:, :, ::-1] % 6, 0, "GatherND")) == {"GatherND"}


@examples(60)
@given(
    pieces=st.lists(
        st.tuples(st.integers(0, SIZE - 1), st.sampled_from([-2, -1, 1, 2, 3]), st.integers(1, 6), st.integers(1, 3)),
        min_size=1, max_size=4,
    ),
    rows=st.sampled_from([None, 2]),
)  # fmt: skip
def test_drawn_pieces(pieces: list[tuple[int, int, int, int]], rows: int | None) -> None:
    drawn = [np.repeat(np.clip(start + step * np.arange(n), 0, SIZE - 1), times) for start, step, n, times in pieces]
    places = np.concatenate(drawn)
    op_types_where_alike(gather(places if rows is None else np.stack([places] * rows), 1))


@pytest.mark.parametrize("workers", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_nearest_upsampling_costs_what_a_resize_costs(workers: int, tmp_path: Path) -> None:
    weights = {name: np.ones((4, 4, 3, 3), np.float32) for name in ("a", "b")}
    up = np.arange(32) // 2
    bodies = {
        "gather": [node("Gather", ["h", "i"], ["r"], axis=2), node("Gather", ["r", "i"], ["m"], axis=3)],
        "resize": [node("Resize", ["h", "", "s"], ["m"], mode="nearest", nearest_mode="floor",
                        coordinate_transformation_mode="asymmetric")],
    }  # fmt: skip
    costs = {}
    for name, body in bodies.items():
        graph = helper.make_graph(
            [node("Conv", ["x", "a"], ["h"], pads=[1] * 4), *body, node("Conv", ["m", "b"], ["y"], pads=[1] * 4)], "up",
            [helper.make_tensor_value_info("x", 1, [1, 4, 16, 16])],
            [helper.make_tensor_value_info("y", 1, [1, 4, 32, 32])],
            [numpy_helper.from_array(array, key) for key, array in
             {**weights, "i": up, "s": np.array([1, 1, 2, 2], np.float32)}.items()],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        (tmp_path / f"{name}.onnx").write_bytes(model.SerializeToString())
        result = api.plan(tmp_path / f"{name}.onnx", gpus=workers, out=tmp_path / name)
        costs[name] = result.plan.cost
    assert costs["gather"] <= costs["resize"]
    assert api.run(tmp_path / "gather", verify=True).verified
    assert api.prove(tmp_path / "gather").is_proven
