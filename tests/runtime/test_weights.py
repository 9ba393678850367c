"""State from files and made up, tile by tile; and weights exported again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, load, numpy_helper, save_model

from planner.algebra.region import Region, index_space
from planner.errors import ModelError, UsageError
from planner.features.zoo.models import mlp
from planner.graph.core.model import DType, Graph, Op, StatePair, Tensor
from planner.options.running import RunOptions
from planner.runtime.run import run_with
from planner.runtime.values.safetensors import read_header, read_tile, write_safetensors
from planner.runtime.values.samples import Sampler
from planner.runtime.values.state import Values
from planner.runtime.values.weight_file import WeightFile

Planner = Callable[..., Any]
GRAPH = mlp(3, 24, 36, learning_rate=0.001)


@given(st.data())
def test_a_tile_is_drawn_as_the_whole_is(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    lo = tuple(data.draw(st.integers(0, size - 1)) for size in shape)
    hi = tuple(data.draw(st.integers(start + 1, size)) for start, size in zip(lo, shape, strict=True))
    tensors = {"x": Tensor("x", shape, DType.FLOAT32), "n": Tensor("n", shape, DType.INT64)}
    graph = Graph("g", tensors, (), ("x", "n"), (), {}, notes={"tofu.inputs": '{"n": {"integers_below": 1000}}'})
    sampler, region, whole = Sampler(graph, 5), Region(lo, hi), Region.whole(shape)
    for name in ("x", "n"):
        tile = sampler.tile(name, region)
        assert tile.tobytes() == np.ascontiguousarray(sampler.tile(name, whole)[region.within(whole)]).tobytes()


def test_made_up_numbers_are_spread_as_they_should_be() -> None:
    tensors = {"x": Tensor("x", (700, 1000), DType.FLOAT64), "n": Tensor("n", (700, 1000), DType.INT32)}
    graph = Graph("g", tensors, (), ("x", "n"), (), {}, notes={"tofu.inputs": '{"n": {"integers_below": 7}}'})
    sampler, whole = Sampler(graph, 0), Region.whole((700, 1000))
    x = sampler.tile("x", whole).ravel()
    assert abs(x.mean()) < 0.005
    assert abs(x.std() - 1) < 0.005
    assert abs((np.abs(x) < 1).mean() - 0.6827) < 0.005
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 0.005
    assert len(np.unique(x)) == x.size
    counts = np.bincount(sampler.tile("n", whole).ravel(), minlength=7) / 100_000
    assert np.abs(counts - 1).max() < 0.02


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 8])
def test_any_number_of_workers_starts_from_the_same_numbers(plan_of: Planner, workers: int) -> None:
    one = run_with(plan_of(GRAPH, 1), RunOptions(seed=9))
    many = run_with(plan_of(GRAPH, workers), RunOptions(seed=9))
    assert one.results.keys() == many.results.keys() != set()
    for name, array in one.results.items():
        np.testing.assert_allclose(many.results[name], array, rtol=2e-5, atol=1e-5)


def test_a_round_trip_of_every_dtype(tmp_path: Path) -> None:
    arrays = {
        "half": np.arange(6).reshape(2, 3).astype(np.float16),
        "brain": np.arange(5).astype(ml_dtypes.bfloat16),
        "größe": np.array(2.5, np.float64),
        "nothing": np.zeros((0, 4), np.float32),
        "bits": np.array([True, False]),
        "whole": np.arange(-3, 3, dtype=np.int8),
    }
    tensors = {name: Tensor(name, array.shape, DType(array.dtype.name)) for name, array in arrays.items()}
    path = tmp_path / "w.safetensors"
    write_safetensors(path, tensors, arrays.__getitem__)
    header = read_header(path)
    assert list(header) == list(arrays)
    for name, array in arrays.items():
        found = read_tile(path, header[name], Region.whole(index_space(array.shape))).reshape(array.shape)
        assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    assert length % 8 == 0
    assert json.loads(raw[8 : 8 + length])["half"] == {"dtype": "F16", "shape": [2, 3], "data_offsets": [0, 12]}
    assert [file.name for file in tmp_path.iterdir()] == ["w.safetensors"]


def header_of(content: object) -> bytes:
    text = json.dumps(content).encode()
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 16,
        header_of([]),
        header_of({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}) + b"1234",
        header_of({"x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}) + b"1234",
        header_of({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}}) + b"12345678",
        header_of({"x": {"dtype": "Q4", "shape": [1], "data_offsets": [0, 4]}}) + b"1234",
    ],
)
def test_what_is_no_safetensors_file(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="cannot be read as safetensors"):
        read_header(path)


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_weights_are_exported_and_taken_again(plan_of: Planner, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"w{suffix}"
    straight = run_with(plan_of(GRAPH, 4), RunOptions(steps=3))
    export = None if suffix == ".npz" else path
    first = run_with(plan_of(GRAPH, 4), RunOptions(steps=2, export=export))
    if suffix == ".npz":
        np.savez(path, **{pair.current: first.results[pair.following] for pair in GRAPH.state})
    else:
        assert first.exported == ("w1", "w2", "w3")
    second = run_with(plan_of(GRAPH, 4), RunOptions(weights=path))
    for name, array in straight.results.items():
        assert second.results[name].tobytes() == array.tobytes()


def test_weights_that_do_not_fit(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", w1=np.zeros((2, 2), np.float32), w22=np.zeros(1), rate=np.zeros(1))
    with pytest.raises(UsageError, match="does not fit the model") as caught:
        WeightFile(tmp_path / "w.npz", GRAPH)
    assert caught.value.facts == (
        "w1: has the shape [2, 2], the input has [24, 24]",
        "w22: no input has this name; did you mean 'w2'?",
        "rate: is a constant whose value the plan holds",
    )


def test_a_forward_model_that_is_another(plan_of: Planner, tmp_path: Path) -> None:
    path = tmp_path / "other.onnx"
    for name, says in (("v", "has no initializer that is a state"), ("w1", "initializer 'w1' is [4, 4]")):
        weight = numpy_helper.from_array(np.zeros((4, 4), np.float32), name)
        x = helper.make_tensor_value_info("x", 1, (8, 4))
        node = helper.make_node("MatMul", ["x", name], ["y"])
        y = helper.make_tensor_value_info("y", 1, (8, 4))
        save_model(helper.make_model(helper.make_graph([node], "g", [x], [y], [weight])), path)
        with pytest.raises(ModelError) as caught:
            run_with(plan_of(GRAPH, 2), RunOptions(export=tmp_path / "w.onnx", forward=path))
        assert says in caught.value.what
        assert caught.value.hint.startswith("--forward is the model that tofu grad was given")


def test_absent_constants_are_loaded_tile_by_tile(plan_of: Planner, tmp_path: Path) -> None:
    """A forward model whose weights are elsewhere: made up, or taken from a file."""
    graph = Graph(
        "forward",
        {
            "x": Tensor("x", (8, 16), DType.FLOAT32),
            "w": Tensor("w", (16, 12), DType.FLOAT32),
            "y": Tensor("y", (8, 12), DType.FLOAT32),
        },
        (Op("product", "MatMul", ("x", "w"), ("y",)),),
        ("x",),
        ("y",),
        {"w": None},
    )
    made_up = [run_with(plan_of(graph, workers), RunOptions(seed=1)).results["y"] for workers in (1, 2, 4)]
    np.testing.assert_allclose(made_up[1], made_up[0], rtol=1e-5)
    np.testing.assert_allclose(made_up[2], made_up[0], rtol=1e-5)
    assert run_with(plan_of(graph, 2), RunOptions(verify=True)).verified
    w = np.ones((16, 12), np.float32)
    np.savez(tmp_path / "w.npz", w=w)
    result = run_with(plan_of(graph, 4), RunOptions(weights=tmp_path / "w.npz"))
    x = Values(graph).whole("x")
    np.testing.assert_allclose(result.results["y"], x @ w, rtol=1e-4, atol=1e-5)


def test_export_asks_first_what_it_cannot_do(plan_of: Planner, tmp_path: Path) -> None:
    plan = plan_of(GRAPH, 1)
    for path, what in (("w.bin", "neither"), ("w.onnx", "into which model"), ("no/w.safetensors", "no folder")):
        with pytest.raises(UsageError, match=what):
            run_with(plan, RunOptions(export=tmp_path / path))


def test_weights_go_back_into_the_forward_model(plan_of: Planner, tmp_path: Path) -> None:
    graph = replace(GRAPH, state=(*GRAPH.state[:2], StatePair("w3", "w3.next")))
    old = [numpy_helper.from_array(np.zeros((24, 24), np.float32), name) for name in ("w1", "w2", "other")]
    forward = helper.make_graph(
        [helper.make_node("MatMul", ["w1", "w2"], ["y"])],
        "forward",
        [],
        [helper.make_tensor_value_info("y", 1, [24, 24])],
        initializer=old,
    )
    (tmp_path / "f.onnx").write_bytes(helper.make_model(forward).SerializeToString())
    options = RunOptions(steps=2, export=tmp_path / "out.onnx", forward=tmp_path / "f.onnx")
    result = run_with(plan_of(graph, 2), options)
    assert result.exported == ("w1", "w2")
    filled = {entry.name: numpy_helper.to_array(entry) for entry in load(tmp_path / "out.onnx").graph.initializer}
    assert filled["w1"].tobytes() == result.results["w1.next"].tobytes()
    assert not filled["other"].any()
