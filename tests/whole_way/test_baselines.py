"""The ways of training that a plan is compared with: right themselves, and within the memory that they are given."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fast_suite import chosen
from planner import api
from planner.artifacts.program import Fetch
from planner.errors import InfeasibleError
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import write_model
from planner.runtime.judge.references import Judge
from planner.runtime.plan_files import load_plan
from planner.runtime.values.state import starting_values


def _bench(name: str) -> ModuleType:
    file = Path(__file__).parents[2] / "bench" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"bench_{name}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[f"bench_{name}"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


swapping, placement = _bench("swapping"), _bench("placement")


@pytest.mark.parametrize("spare", chosen([0, 1000, 10**9], fast=[0]))
def test_swapping_gives_what_the_whole_model_gives(mlp_step: Graph, spare: int) -> None:
    limit = swapping.largest_op_bytes(mlp_step) + spare
    values = starting_values(mlp_step)
    model, judge = swapping.SwappingModel(mlp_step, values, limit), Judge(mlp_step)
    for number in range(2):
        found = model.step()
        verdict, _ = judge.compare(number + 1, found.outputs, values)
        assert verdict.is_same, verdict.worst
        assert 0 < found.peak_bytes <= limit
        assert (found.out_bytes > 0) == (spare < 10**9)
        assert (found.in_bytes > 0) == (spare < 10**9 or number == 0)
        values = {**values, **{pair.current: found.outputs[pair.following].copy() for pair in mlp_step.state}}


def test_a_device_that_an_op_does_not_fit_is_refused(mlp_step: Graph) -> None:
    largest = swapping.largest_op_bytes(mlp_step)
    with pytest.raises(InfeasibleError, match=f"an op alone needs {largest} bytes"):
        swapping.SwappingModel(mlp_step, starting_values(mlp_step), largest - 1)


def test_the_least_recently_used_is_taken_and_copied_once() -> None:
    tensors = {name: np.full(4, number, np.float32) for number, name in enumerate("abc")}
    device = swapping.Device(32, {"a": tensors["a"]})
    assert device.bring("a", ())
    device.place("b", tensors["b"])
    assert device.bring("a", ()), "it is there, and is used again"
    assert device.make_room(16, ())
    assert (list(device.held), device.in_bytes, device.out_bytes) == (["a"], 16, 16)
    assert device.make_room(32, ())
    assert (list(device.held), device.out_bytes) == ([], 16), "the host has a copy of it"
    assert device.bring("b", ())
    assert not device.make_room(32, ("b",))
    np.testing.assert_array_equal(device.value("b"), tensors["b"])


@pytest.mark.parametrize("workers", [2, 3])
def test_operator_placement_is_a_plan_that_runs(cnn_step: Graph, workers: int, tmp_path: Path) -> None:
    train = tmp_path / "train.onnx"
    write_model(cnn_step, train)
    directory = placement.placed(train, workers, tmp_path)
    result = api.run(directory, steps=2, verify=True)
    assert result.verified, result.difference()
    assert result.moved_bytes == result.predicted_bytes > 0
    plan = load_plan(directory)
    done = [
        {op for step in worker.steps if not isinstance(step, Fetch) for op in step.ops}
        for worker in plan.program.workers
    ]
    assert all(done), "every worker has something to do"
    assert sum(map(len, done)) == len(set().union(*done)), "no op runs on two workers"
