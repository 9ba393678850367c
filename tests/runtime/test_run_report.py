"""What a run says of itself: the table, and the JSON."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner.artifacts.on_gpus import CudaChanges, OnGpus
from planner.errors import DifferenceError
from planner.printing import tables
from planner.records import plain_record
from planner.runtime.engine.core.interface import InProcessEngine
from planner.runtime.judge.compare import FarTensor, compare_step
from planner.runtime.run_report import RunResult
from planner.runtime.values.state import starting_values
from planner.runtime.values.tiles import gather_tiles, load_tiles
from run_plan import run_plan


def printed(result: RunResult) -> str:
    file = io.StringIO()
    tables.print_run(result, file)
    return file.getvalue()


def with_step(result: RunResult, split: Any, whole: Any, exact: Any) -> RunResult:
    step = compare_step(1, split, whole, exact)
    return replace(result, comparisons=(step,), verified=step.is_same, max_error=step.max_error)


def test_one_step_without_a_loss(reduction: Any) -> None:
    text = printed(run_plan(reduction.plan, verify=True))
    assert text.splitlines()[0].split() == ["step", "time"]
    assert "checked 1 tensor in 1 step against float64 largest" in " ".join(text.split())
    assert " in Z, step 1, the original model's " in text
    assert ", limit " in text


def test_several_steps_with_a_loss(training: Any) -> None:
    result = run_plan(training.plan, steps=2, verify=True)
    text = printed(result)
    assert text.splitlines()[0].split() == ["step", "loss", "time"]
    assert "4 tensors in 2 steps" in text
    found = plain_record(result)
    assert found["fetches"] == len(result.fetches)
    assert [step["tensors"] for step in found["comparisons"]] == [2, 2]
    assert found["comparisons"][0]["different"] == []
    assert found["comparisons"][0]["worst"]["name"] in ("loss", "W_next")
    assert found["max_error"] == max(step["worst"]["error"] for step in found["comparisons"])
    for step in found["comparisons"]:
        assert [tensor["name"] for tensor in step["judged"]] == ["loss", "W_next"]
        assert all(tensor["error"] <= tensor["limit"] and tensor["is_same"] for tensor in step["judged"])
        assert all(tensor["median_error"] <= tensor["median_limit"] for tensor in step["judged"])
    worst = max((step["worst"] for step in found["comparisons"]), key=lambda tensor: float(tensor["error"]))
    assert found["max_error_limit"] == worst["limit"]
    assert plain_record(run_plan(training.plan))["comparisons"] == []
    assert plain_record(run_plan(training.plan))["max_error_limit"] is None


def test_copies_between_gpus_without_peer_access_are_in_the_memory(reduction: Any) -> None:
    result = run_plan(reduction.plan)
    assert result.staging_bytes == (0, 0)
    assert "for copies" not in printed(result)
    before = plain_record(result)["peak_bytes"]
    result = replace(result, staging_bytes=(0, 2048))
    assert "at peak, 2.0 KiB for copies between workers" in " ".join(printed(result).split())
    found = plain_record(result)
    assert found["staging_bytes"] == [0, 2048]
    assert found["peak_bytes"] == [before[0], before[1] + 2048]


def test_noise_is_counted(reduction: Any) -> None:
    exact = {"y": np.array([1e-19, -1e-19]), "z": np.ones(2)}
    whole = {"y": np.array([1e-10, -2e-10], np.float32), "z": np.ones(2, np.float32)}
    result = with_step(run_plan(reduction.plan, verify=True), whole, whole, exact)
    assert "2 tensors in 1 step against float64 (1 too close to zero to compare)" in printed(result)
    assert plain_record(result)["comparisons"][0]["noise"] == 1


def test_an_overflow_is_said_and_is_valid_json(reduction: Any) -> None:
    whole = {"y": np.full(2, np.inf, np.float32)}
    result = with_step(run_plan(reduction.plan, verify=True), whole, whole, {"y": np.full(2, 1e39)})
    text = printed(result)
    assert "NOT verified" in text
    assert "step 1, y: the whole model overflows in its own precision" in text
    found = plain_record(replace(result, losses=(float("nan"),)))
    assert found["comparisons"][0]["different"][0]["name"] == "y"
    json.dumps(found, allow_nan=False)


def test_nothing_but_nan_is_said(reduction: Any) -> None:
    whole = {"y": np.full(2, np.nan, np.float32)}
    text = printed(with_step(run_plan(reduction.plan, verify=True), whole, whole, {"y": np.full(2, np.nan)}))
    assert "not finite 2 elements of the original model" in " ".join(text.split())
    assert "NOT verified" in text
    assert "step 1: nothing could be compared" in text


def test_what_is_known_of_gpus_is_told(reduction: Any) -> None:
    result = run_plan(reduction.plan)
    assert result.on_gpus is None
    assert "on_gpus" not in plain_record(result)
    changes = CudaChanges(widened=("Log of bfloat16",), on_cpu=("Acosh of float32", "Cosh of float32"))
    result = replace(result, on_gpus=OnGpus(changes, ((0, 4096), (1, 2048))), nearly_same=3)
    text = " ".join(printed(result).split())
    assert "sessions and tables 4.1 kB on GPU 0, 2.0 kB on GPU 1" in text
    assert "computed in larger types Log of bfloat16" in text
    assert "on the CPU Acosh of float32, Cosh of float32" in text
    assert "computed by other ops" not in text
    assert "replicas differ in the last bits in 3 places" in text
    found = json.loads(json.dumps(plain_record(result)))
    assert found["on_gpus"]["changes"]["on_cpu"] == ["Acosh of float32", "Cosh of float32"]
    assert found["on_gpus"]["beside_bytes"] == [[0, 4096], [1, 2048]]
    assert found["nearly_same"] == 3


@pytest.mark.parametrize(("factor", "is_near"), [(1 + 2**-22, True), (1.001, False)])
def test_replicas_on_gpus_may_differ_in_the_last_bits(training: Any, factor: float, is_near: bool) -> None:
    """The next weights are on all three workers; the last one's are a little different."""
    plan = training.plan
    shapes = {"W_next": plan.graph.tensors["W_next"].shape}
    with InProcessEngine(plan.models, plan.program.state) as engine:
        load_tiles(engine, starting_values(plan.graph, seed=4))
        engine.iterate()
        wanted = gather_tiles(engine, ["W_next"], shapes, nearly_same=(same := []))
        assert not same
        engine.array(2, "W_next")[...] *= np.float32(factor)
        with pytest.raises(DifferenceError, match="differ"):
            gather_tiles(engine, ["W_next"], shapes)
        near: list[str] = []
        if not is_near:
            with pytest.raises(DifferenceError, match="differ"):
                gather_tiles(engine, ["W_next"], shapes, nearly_same=near)
            return
        found = gather_tiles(engine, ["W_next"], shapes, nearly_same=near)
    np.testing.assert_array_equal(found["W_next"], wanted["W_next"])
    assert len(near) == 1


def test_a_whole_model_that_is_no_judge_is_said(reduction: Any) -> None:
    result = run_plan(reduction.plan, verify=True)
    assert "float64 reference in" not in printed(result)
    step = replace(result.comparisons[0], far=(FarTensor("Z", 0.25), FarTensor("Y", 0.125)))
    text = " ".join(printed(replace(result, comparisons=(step,))).split())
    assert "2.50e-01 off the float64 reference in Z, in 1 step: the reference is used instead" in text
    found = plain_record(replace(result, comparisons=(step,)))["comparisons"][0]
    assert found["far"] == [{"tensor": "Z", "error": 0.25}, {"tensor": "Y", "error": 0.125}]


def test_what_the_reference_cannot_tell_is_counted(reduction: Any) -> None:
    whole, exact = {"y": np.array([1, 2], np.float32)}, {"y": np.array([np.nan, 2])}
    step = compare_step(1, whole, whole, exact, fed_strange=["y"])
    result = replace(run_plan(reduction.plan, verify=True), comparisons=(step,))
    assert step.is_same
    assert "1 element, where inputs are not finite and float64 is undefined" in " ".join(printed(result).split())
    assert plain_record(result)["comparisons"][0]["untold_elements"] == 1
