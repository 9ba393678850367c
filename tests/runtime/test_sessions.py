"""How many threads a session has, and what they do while they have nothing to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper

from planner import api
from planner.artifacts.program import Segment
from planner.features.zoo.models import mlp
from planner.graph.files.to_onnx import write_model
from planner.runtime.engine.core import backend as backends
from planner.runtime.engine.core import sessions
from planner.runtime.engine.core.exchange import Exchange
from planner.runtime.engine.core.sessions import SessionMaker, threads_of
from planner.runtime.plan_files import load_plan
from run_plan import run_plan


def test_threads_sleep_while_they_have_nothing_to_do() -> None:
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])], "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
    )  # fmt: skip
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    for is_small, threads in ((False, 3), (True, 1)):
        options = SessionMaker(3).session(model, is_small=is_small).get_session_options()
        assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
        assert options.intra_op_num_threads == threads


def test_workers_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "cores", lambda: 6)
    assert [threads_of(workers) for workers in (1, 2, 4, 8)] == [6, 3, 1, 1]


@pytest.mark.parametrize(("width", "most", "threads"), [(16, 4096, {1}), (512, 4096, {1, 6}), (512, 4, {1, 2})])
def test_small_segments_have_one_thread(
    width: int, most: int, threads: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process has at most so many in all; here for four segments."""
    monkeypatch.setattr(sessions, "cores", lambda: 6)
    monkeypatch.setattr(backends, "_MOST_THREADS", most)
    write_model(mlp(2, width, 8, learning_rate=0.1), tmp_path / "mlp.onnx")
    api.plan(tmp_path / "mlp.onnx", gpus=1, out=tmp_path / "plan")
    plan = load_plan(tmp_path / "plan")
    (model,) = plan.models
    segments = [step for step in model.program.steps if isinstance(step, Segment)]
    exchange = Exchange([model.program])
    backend = backends.CpuBackend(exchange, 1, 4)
    arrays = backend.arrays(model)
    for segment in segments:
        backend.segment(segment, model, arrays)
    made: list[Any] = list(backend._sessions.values())
    found = {session.get_session_options().intra_op_num_threads for session in made}
    assert found <= threads
    assert max(found) == max(threads)


def test_a_run_says_how_many_threads_a_worker_has(training: Any) -> None:
    result = run_plan(training.plan, steps=1)
    assert result.threads == threads_of(len(result.arena_bytes))
