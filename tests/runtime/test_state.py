"""Where the first values come from, and tiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from drawn_inputs import sample
from planner.algebra.region import Region
from planner.artifacts.program import Buffer
from planner.errors import ModelError, UsageError
from planner.graph.core.model import DType, Graph, Op, StatePair, Tensor
from planner.runtime.values.npz import read_npz
from planner.runtime.values.results import write_arrays
from planner.runtime.values.samples import index_bound
from planner.runtime.values.state import check_inputs, part_of, starting_values


def graph_of(dtype: DType = DType.FLOAT32, notes: dict[str, str] | None = None, *ops: Op, **tensors: Any) -> Graph:
    """Inputs x [3, 4] (of the dtype) and state W [8, 4], W_next = W."""
    known = {
        "x": Tensor("x", (3, 4), dtype),
        "W": Tensor("W", (8, 4), DType.FLOAT32),
        "W_next": Tensor("W_next", (8, 4), DType.FLOAT32),
        **tensors,
    }
    made = (Op("keep", "Identity", ("W",), ("W_next",)), *ops)
    return Graph("g", known, made, ("x", "W"), ("W_next",), {}, state=(StatePair("W", "W_next"),), notes=notes or {})


def test_what_is_given_comes_first_then_the_models_own(training: Any) -> None:
    x = np.ones((6, 3), np.float32)
    values = starting_values(training.graph, {"in_X": x})
    np.testing.assert_array_equal(values["X"], x)
    np.testing.assert_array_equal(values["W"], training.graph.initial["W"])
    assert list(values) == list(training.graph.inputs)


def test_numbers_depend_on_seed_and_name_only(training: Any) -> None:
    first = starting_values(training.graph, seed=3)["X"]
    assert starting_values(training.graph, {"W": first[:3, :2].copy()}, seed=3)["X"].tobytes() == first.tobytes()
    assert starting_values(training.graph, seed=4)["X"].tobytes() != first.tobytes()


def test_all_findings_at_once(training: Any, tmp_path: Path) -> None:
    path = tmp_path / "batch.npz"
    np.savez(
        path,
        X=np.ones((6, 2), np.float32),
        in_X=np.ones((6, 3), np.float32),
        in_W=np.ones((3, 2)),
        W_nxt=np.ones(1),
        out_loss=np.ones(1),
    )
    with pytest.raises(UsageError, match="does not fit the model") as caught:
        starting_values(training.graph, path)
    assert caught.value.facts == (
        "X: has rows of [2], the input has rows of [3]",
        "in_X: input X is given twice",
        "in_W: is of float64, the input is of float32",
        "W_nxt: no input has this name",
    )
    advice = "pad or cut each row to [3], or export the model for rows of [2]; convert it: in_W.astype('float32')"
    assert caught.value.hint == f"the data inputs are: X; {advice}"


def test_did_you_mean() -> None:
    graph = graph_of()
    with pytest.raises(UsageError) as caught:
        check_inputs(graph, {"WW": np.zeros((8, 4), np.float32)}, source="inputs")
    assert caught.value.facts == ("WW: no input has this name; did you mean 'W'?",)
    with pytest.raises(UsageError) as caught:
        check_inputs(graph, {"w": np.zeros((8, 4), np.float32)}, source="inputs")
    assert caught.value.facts == ("w: no input has this name; did you mean 'W'?",)


def test_fewer_rows_than_a_batch_has(training: Any) -> None:
    with pytest.raises(UsageError) as caught:
        check_inputs(training.graph, {"X": np.zeros((4, 3), np.float32)}, source="inputs")
    assert caught.value.hint == "give 6 rows or more, or plan for fewer: tofu grad --batch 4"


@pytest.mark.parametrize(
    ("dtype", "hint"),
    [(np.float64, "convert it: W.astype('float32')"), (np.complex64, "give float32"), (">f4", "")],
)
def test_an_array_of_another_dtype_is_told_how_to_convert(dtype: Any, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_inputs(graph_of(), {"W": np.zeros((8, 4), dtype), "x": np.zeros((1, 1), np.float32)}, source="inputs")
    assert caught.value.hint == hint


def test_foreign_byte_order_is_turned() -> None:
    values = check_inputs(graph_of(), {"W": np.arange(32, dtype=">f4").reshape(8, 4)}, source="inputs")
    assert values["W"].dtype == np.dtype("=f4")
    assert values["W"].dtype.isnative
    assert values["W"][7, 3] == 31


def test_bfloat16_survives_npz(tmp_path: Path) -> None:
    graph = graph_of(DType.BFLOAT16)
    np.savez(tmp_path / "a.npz", x=np.full((3, 4), 1.5, ml_dtypes.bfloat16))
    value = starting_values(graph, tmp_path / "a.npz")["x"]
    assert value.dtype == ml_dtypes.bfloat16
    assert float(value[2, 3]) == 1.5


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    arrays = {"file": np.arange(3), "a/b.c": np.array(2.5, np.float32), "": np.zeros((0, 2), np.bool_)}
    for name in ("one.npz", "two.npz"):
        write_arrays(tmp_path / name, arrays)
    read = read_npz(tmp_path / "one.npz")
    assert {name: (array.dtype, array.shape, array.tolist()) for name, array in read.items()} == {
        name: (array.dtype, array.shape, array.tolist()) for name, array in arrays.items()
    }
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["one.npz", "two.npz"]
    with pytest.raises(UsageError, match="cannot be written"):
        write_arrays(tmp_path / "absent" / "one.npz", arrays)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no zip", b"\x93NUMPY"])
def test_what_is_no_npz(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is not an npz file") as caught:
        starting_values(graph_of(), path)
    assert caught.value.what == f"{path} is not an npz file"


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        starting_values(graph_of(), tmp_path / "none.npz")
    assert str(caught.value) == f"{tmp_path}/none.npz does not exist\nhint: see which files are there: ls {tmp_path}"
    with pytest.raises(UsageError) as caught:
        read_npz(tmp_path)
    assert caught.value.what == f"{tmp_path} cannot be read: Is a directory"


def test_damaged_arrays_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.arange(1000.0))
    content = bytearray(path.read_bytes())
    content[200:300] = bytes(100)
    path.write_bytes(content)
    with pytest.raises(UsageError, match="holds what cannot be read") as caught:
        read_npz(path)
    assert caught.value.facts == ("x: it has a damaged header",)


def test_a_single_array_is_no_npz(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(3))
    with pytest.raises(UsageError, match="holds one array"):
        starting_values(graph_of(), tmp_path / "a.npy")


def test_pickles_are_not_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([{}], object))
    with pytest.raises(UsageError, match="holds what cannot be read") as caught:
        starting_values(graph_of(), tmp_path / "a.npz")
    assert caught.value.facts == ("x: it holds Python objects, which are never loaded",)


def test_metadata_says_what_to_draw() -> None:
    graph = graph_of(DType.INT64, {"tofu.inputs": '{"x": {"integers_below": 2}, "W": {"value": 0.05}}'})
    values = starting_values(graph)
    assert set(values["x"].ravel().tolist()) == {0, 1}
    assert values["x"].dtype == np.int64
    np.testing.assert_array_equal(values["W"], np.full((8, 4), 0.05, np.float32))
    for text in ("{", "[]", '{"x": 3}'):
        with pytest.raises(ModelError, match=r"tofu\.inputs"):
            starting_values(graph_of(DType.INT64, {"tofu.inputs": text}))


@pytest.mark.parametrize(
    ("labels", "fault"),
    [
        ([0, 3, 2, 1], ""),
        ([0, 3, 4, -1], "x: 2 of 4 labels are no class, the first of them 4: classes are 0 to 3"),
        (
            [-9, 3, -1, 2],
            "x: 1 of 4 labels are no class, the first of them -1: classes are 0 to 3 and the ignored -9",
        ),
    ],
)
def test_labels_that_are_no_class_are_refused(labels: list[int], fault: str) -> None:
    ignored = ', "ignored": -9' if -9 in labels else ""
    notes = {"tofu.inputs": '{"x": {"integers_below": 4, "labels": true' + ignored + "}}"}
    graph = Graph("g", {"x": Tensor("x", (4,), DType.INT64)}, (), ("x",), (), {}, notes=notes)
    given = {"x": np.array(labels)}
    if not fault:
        np.testing.assert_array_equal(starting_values(graph, given)["x"], labels)
        return
    with pytest.raises(UsageError, match="does not fit the model") as caught:
        starting_values(graph, given)
    assert caught.value.facts == (fault,)


def test_state_without_a_value_is_scaled_by_fan_in() -> None:
    wide = Graph(
        "g",
        {"W": Tensor("W", (50, 400), DType.FLOAT32), "n": Tensor("n", (), DType.INT64)},
        (),
        ("W", "n"),
        (),
        {},
        state=(StatePair("W", "W"), StatePair("n", "n")),
    )
    values = sample(wide, ["W", "n"], 0)
    assert abs(values["W"].std() * 20 - 1) < 0.05
    assert values["n"] == 0


def test_an_index_is_drawn_below_what_it_indexes() -> None:
    turn = Op("turn", "Unsqueeze", ("x", ""), ("y",))
    take = Op("take", "Gather", ("W", "y"), ("z",))
    tensors = {"y": Tensor("y", (3, 4, 1), DType.INT32), "z": Tensor("z", (3, 4, 1, 4), DType.FLOAT32)}
    graph = graph_of(DType.INT32, None, turn, take, **tensors)
    assert index_bound(graph, "x") == 8
    values = starting_values(graph)["x"]
    assert values.min() >= 0
    assert 4 <= values.max() < 8


def test_an_integer_without_a_bound_is_asked_for() -> None:
    with pytest.raises(UsageError, match="nothing bounds") as caught:
        starting_values(graph_of(DType.INT64))
    assert caught.value.facts == ("x: int64 [3, 4]",)
    assert "--inputs" in caught.value.hint


def test_truth_values() -> None:
    cast = Op("cast", "Cast", ("x",), ("y",), (("to", 9),))
    graph = graph_of(DType.INT64, None, cast, y=Tensor("y", (3, 4), DType.BOOL))
    assert set(starting_values(graph)["x"].ravel().tolist()) == {0, 1}
    assert set(starting_values(graph_of(DType.BOOL))["x"].ravel().tolist()) == {False, True}


def test_a_tile_is_the_region_of_its_tensor() -> None:
    whole = np.arange(20).reshape(4, 5)
    buffer = Buffer("b", "t", Region((1, 2), (3, 5)), (2, 3), DType.INT64)
    np.testing.assert_array_equal(part_of(whole, buffer.region).reshape(buffer.shape), [[7, 8, 9], [12, 13, 14]])
    scalar = Buffer("b", "t", Region((0,), (1,)), (), DType.INT64)
    assert part_of(np.array(3), scalar.region).reshape(scalar.shape).shape == ()
