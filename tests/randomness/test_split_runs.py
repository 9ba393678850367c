"""Bit for bit the same numbers on any number of workers, step by step."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from fast_suite import chosen, spread
from planner import api
from planner.graph.core.model import DType, Graph, Op, StatePair, Tensor
from planner.graph.files.to_onnx import write_model

F = DType.FLOAT32


def noisy(rows: int = 13, width: int = 37) -> Graph:
    """A state that random walks, and what it is made of."""
    shape = (rows, width)
    floats = ("w", "w.next", "normal", "uniform", "coins", "dropped")
    tensors = {name: Tensor(name, shape, F) for name in floats}
    tensors["mask"] = Tensor("mask", shape, DType.BOOL)
    tensors["picked"] = Tensor("picked", (rows, 5), DType.INT32)
    tensors["ratio"], tensors["train"] = Tensor("ratio", (), F), Tensor("train", (), DType.BOOL)
    ops = (
        Op("normal_op", "RandomNormalLike", ("w",), ("normal",), (("scale", 0.5),)),
        Op("uniform_op", "RandomUniformLike", ("w",), ("uniform",)),
        Op("coins_op", "Bernoulli", ("uniform",), ("coins",)),
        Op("drop_op", "Dropout", ("normal", "ratio", "train"), ("dropped", "mask")),
        Op("classes_op", "Multinomial", ("normal",), ("picked",), (("sample_size", 5),)),
        Op("add_op", "Add", ("w", "dropped"), ("w.next",)),
    )
    constants = {"ratio": np.array(0.25, np.float32), "train": np.array(True)}
    outputs = ("normal", "uniform", "coins", "mask", "picked", "w.next")
    return Graph("noisy", tensors, ops, ("w",), outputs, constants, frozenset(constants),
                 state=(StatePair("w", "w.next"),))  # fmt: skip


def bits(path: Path) -> Mapping[str, bytes]:
    with np.load(path) as arrays:
        return {name: arrays[name].tobytes() for name in arrays.files}


@pytest.mark.parametrize(("tiling", "numbers"), spread(["S(0)", "S(1)", None], [(1, 2), (1, 3), (1, 4)], one_of=9))
def test_any_number_of_workers_draws_the_same(tmp_path: Path, tiling: str | None, numbers: tuple[int, ...]) -> None:
    write_model(noisy(), tmp_path / "m.onnx")
    found = []
    for workers in numbers:
        directory, result = tmp_path / f"plan{workers}", tmp_path / f"{workers}.npz"
        pin = {} if tiling is None else dict.fromkeys(("w", "normal", "mask", "uniform", "coins"), tiling)
        planned = api.plan(tmp_path / "m.onnx", gpus=workers, out=directory, pin=pin)
        if tiling == "S(1)":  # a class is drawn by all of its row's weights
            assert (planned.plan.moved_bytes > 0) == (workers > 1)
        api.run(directory, steps=3, result=result)
        found.append(bits(result))
    assert all(other == found[0] for other in found[1:])


@pytest.mark.parametrize("workers", chosen([2, 3], fast=[2]))
def test_a_split_run_is_verified_and_steps_differ(tmp_path: Path, workers: int) -> None:
    write_model(noisy(), tmp_path / "m.onnx")
    api.plan(tmp_path / "m.onnx", gpus=workers, out=tmp_path / "plan")
    result = api.run(tmp_path / "plan", steps=3, verify=True)
    assert result.verified, result.difference()
    assert not result.no_reference
    assert result.moved_bytes == result.predicted_bytes
    masks = []
    for steps in (1, 2):
        api.run(tmp_path / "plan", steps=steps, result=tmp_path / "out.npz")
        masks.append(bits(tmp_path / "out.npz")["mask"])
    assert masks[0] != masks[1]
    with np.load(tmp_path / "out.npz") as arrays:
        assert arrays["tofu.step.next"] == 2


def test_explain_reads_a_plan_of_random_ops(tmp_path: Path) -> None:
    write_model(noisy(), tmp_path / "m.onnx")
    planned = api.plan(tmp_path / "m.onnx", gpus=2, out=tmp_path / "plan")
    explained = api.explain(tmp_path / "plan")
    planned_through = [row for row in explained.ops if row.strategy == "through its body"]
    assert [row.op_type for row in planned_through] == ["CumSum"], "the running weights of classes"
    assert {row.name for row in explained.ops if row not in planned_through} == set(planned.plan.strategies)
    assert {row.name for row in explained.tensors} == set(planned.plan.tilings)
