"""An op in steps takes what its exchanges and its computing take, the one beside the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner import api
from planner.algebra.tiling import Shard, Tiling
from planner.artifacts.estimate import TimeEstimate
from planner.artifacts.plan import OpStrategy, Steps
from planner.cost.seconds.exchange import ExchangeTime
from planner.cost.seconds.pipelined import Pipeline
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.graph.files.to_onnx import write_model
from planner.planning.limit.in_steps import OpSchedule

LATENCY = 0.5


def pipeline(count: int) -> Pipeline:
    strategy = OpStrategy(Tiling((Shard(0),), (2,)), ("m", "n", "k"), Steps(2, count))
    return Pipeline.of(Op("op", "MatMul", ("a", "b"), ("c",)), strategy)


def times(**seconds: float) -> dict[str, ExchangeTime]:
    return {
        f"fetch {name.replace('_', '@op.', 1).replace('_', '.')}": ExchangeTime(one + LATENCY, {}, {}, LATENCY)
        for name, one in seconds.items()
    }


@pytest.mark.parametrize(("come", "each"), [(2.0, 3.0), (3.0, 2.0), (2.0, 2.0)])
def test_a_pipeline_of_equal_chunks_takes_what_the_formula_says(come: float, each: float) -> None:
    """L + t_X(1) + (n - 1) max(t_X, t_C) + t_C(n)."""
    known = times(**{f"a_0_{chunk}": come for chunk in range(4)})
    serial = 4 * (come + LATENCY) + 4 * each
    hidden = pipeline(4).hidden_seconds(known, 4 * each)
    assert serial - hidden == pytest.approx(LATENCY + come + 3 * max(come, each) + each)


def test_without_exchanges_nothing_is_hidden_and_joins_are_hidden_but_the_last() -> None:
    assert pipeline(3).hidden_seconds({}, 6.0) == 0
    joins = {f"fetch c@reduced.{chunk}": ExchangeTime(1 + LATENCY, {}, {}, LATENCY) for chunk in range(3)}
    serial = 3 * (1 + LATENCY) + 6.0
    assert serial - pipeline(3).hidden_seconds(joins, 6.0) == pytest.approx(LATENCY + 6.0 + 1)


def test_each_step_launches_its_kernel(tmp_path: Path) -> None:
    tensors = {name: Tensor(name, (64, 64), DType.FLOAT32) for name in "abc"}
    op = Op("op", "MatMul", ("a", "b"), ("c",))
    write_model(Graph("one", tensors, (op,), ("a", "b"), ("c",), {}), tmp_path / "m.onnx")
    (tmp_path / "two.yaml").write_text(
        "name: two\n"
        "device: {memory: 1GiB, compute: {float32: 1TFLOP/s}, memory_bandwidth: 100GB/s, launch: 100us}\n"
        "levels: [{name: link, ways: 2, bandwidth: 10GB/s}]\n"
    )
    asked = {"topology": str(tmp_path / "two.yaml"), "objective": "bytes", "inputs": "partitioned"}
    plan = api.plan(tmp_path / "m.onnx", **asked, op_schedule="stepped", out=tmp_path / "plan").plan  # type: ignore[arg-type]
    (stepped,) = plan.stepped
    assert plan.estimate is not None
    assert plan.estimate.compute_seconds == pytest.approx(stepped.count * 100e-6)


def test_a_plan_in_steps_is_estimated_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It computes what it computes at once, and of what it fetches computing hides a part, at most all of itself."""
    tensors = {name: Tensor(name, (1024, 1024), DType.FLOAT32) for name in "abc"}
    op = Op("op", "MatMul", ("a", "b"), ("c",))
    write_model(Graph("one", tensors, (op,), ("a", "b"), ("c",), {}), tmp_path / "m.onnx")

    def estimated(how: OpSchedule, name: str) -> TimeEstimate:
        asked = {"topology": "p2.8xlarge", "objective": "bytes", "inputs": "partitioned", "op_schedule": how}
        found = api.plan(tmp_path / "m.onnx", **asked, out=tmp_path / name).plan.estimate  # type: ignore[arg-type]
        assert found is not None
        return found

    whole, stepped = estimated("whole", "whole"), estimated("stepped", "stepped")
    monkeypatch.setattr(Pipeline, "hidden_seconds", lambda *given: 0.0)
    serial = estimated("stepped", "serial")
    assert stepped.compute_seconds == whole.compute_seconds == serial.compute_seconds
    hidden = serial.transfer_seconds - stepped.transfer_seconds
    assert 0 < hidden <= stepped.compute_seconds
    assert serial.transfer_seconds >= whole.transfer_seconds
    assert stepped.overlapped_seconds <= stepped.estimated_seconds
