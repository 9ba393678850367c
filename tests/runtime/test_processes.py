"""The engine ``processes``: the numbers of the engine ``local``, and what is told when one of the processes fails."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harmed_child import HARM, is_gone
from planner import api
from planner.errors import UsageError, WorkerError
from planner.features.zoo.models import mlp
from planner.features.zoo.models.recurrent import rnn
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import write_model
from planner.options.running import RunOptions
from planner.runtime.engine.core.exchange import Exchange, as_seen_by
from planner.runtime.engine.gpu.devices import probe_cuda
from planner.runtime.engine.process import shared_peers
from planner.runtime.engine.process.supervisor import SupervisedEngine
from planner.runtime.plan_files import load_plan
from planner.runtime.run import run_with
from planner.runtime.values.state import starting_values
from planner.runtime.values.tiles import load_tiles


def engine_of(case: Any, tmp_path: Path, harm: str, place: tuple[int, str], patience: float = 60.0) -> SupervisedEngine:
    """Started workers, one of which does some harm when it comes to a segment."""
    loaded = load_plan(case.write(tmp_path / "plan"))
    command: Sequence[str] = (sys.executable, "-P", "-c", HARM.format(place=place, harm=harm))
    engine = SupervisedEngine(
        loaded.paths,
        loaded.program.workers,
        loaded.program.state,
        is_apart=True,
        patience_seconds=patience,
        command=command,
    )
    load_tiles(engine, starting_values(loaded.graph))
    return engine


@pytest.mark.parametrize(
    ("model", "workers"),
    [
        pytest.param(mlp(3, 24, 36, learning_rate=0.001), 2, id="mlp on 2"),
        pytest.param(mlp(3, 24, 36, learning_rate=0.001), 8, id="mlp on 8", marks=pytest.mark.slow),
        pytest.param(rnn(1, 8, batch=6, steps=2, optimizer="sgd"), 3, id="rnn on 3"),
    ],
)
def test_both_engines_give_the_same_bits(model: Graph, workers: int, tmp_path: Path) -> None:
    write_model(model, tmp_path / "model.onnx")
    api.plan(tmp_path / "model.onnx", gpus=workers, out=tmp_path / "plan")
    plan = load_plan(tmp_path / "plan")
    local, apart = (run_with(plan, RunOptions(steps=3, seed=7, engine=name)) for name in ("local", "processes"))
    assert {name: array.tobytes() for name, array in local.results.items()} == {
        name: array.tobytes() for name, array in apart.results.items()
    }
    assert local.losses == apart.losses
    assert [one.moved_bytes for one in local.fetches] == [one.moved_bytes for one in apart.fetches]


@pytest.mark.slow
def test_programs_of_every_kind(reduction: Any, training: Any, halo: Any, tmp_path: Path) -> None:
    for number, case in enumerate((reduction, training, halo)):
        plan = load_plan(case.write(tmp_path / str(number)))
        apart = run_with(plan, RunOptions(steps=2, seed=4, engine="processes", profile=True))
        assert apart.profile is not None
        for name, array in run_with(plan, RunOptions(steps=2, seed=4)).results.items():
            assert array.tobytes() == apart.results[name].tobytes()


def test_memory_lies_where_the_others_see_it(training: Any) -> None:
    """What a worker knows of the others lays out the very memory that all of them lay out together."""
    programs = training.program.workers
    whole = Exchange(programs)
    whole.counts[:, 0] = [5, 6, 7]
    assert len(programs) == 3
    for worker in range(len(programs)):
        mine = Exchange(as_seen_by(worker, programs), whole.handle)
        read = {
            (source.worker, source.buffer) for step in programs[worker].steps for source in getattr(step, "sources", ())
        }
        assert any(owner != worker for owner, _ in read)
        for owner, name in read:
            whole.array(owner, name)[...] = len(name) + owner
            np.testing.assert_array_equal(mine.array(owner, name), whole.array(owner, name))
        assert mine.counts[:, 0].tolist() == [5, 6, 7]


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        ("signal.pthread_kill(threading.get_ident(), signal.SIGSEGV); time.sleep(5)", "died by SIGSEGV in"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "died by SIGKILL in"),
        ("os._exit(7)", "ended with exit code 7 in"),
        ("raise ValueError('bad luck')", "failed in"),
    ],
    ids=["crash", "kill", "exit", "exception"],
)
def test_a_process_that_fails_is_named_and_the_others_end(harm: str, told: str, training: Any, tmp_path: Path) -> None:
    """The other two wait for its step, and would for ever."""
    engine = engine_of(training, tmp_path, harm, (0, "step"))
    with engine, pytest.raises(WorkerError) as caught:
        engine.iterate()
    assert caught.value.what == f"worker 0 {told} segment 'step' (ops op of step, step)"
    assert len(engine.process_ids) == 3
    assert all(map(is_gone, engine.process_ids))


def test_a_process_that_hangs_is_named_and_those_that_wait_for_it(training: Any, tmp_path: Path) -> None:
    engine = engine_of(training, tmp_path, "time.sleep(3600)", (0, "step"), patience=2)
    with engine, pytest.raises(WorkerError, match=r"^worker 0 does not end segment 'step'") as caught:
        engine.iterate()
    assert [fact.partition(" in ")[0] for fact in caught.value.facts] == [
        "worker 0 is",
        "worker 1 waits for worker 0",
        "worker 2 waits for worker 0",
    ]
    assert all(map(is_gone, engine.process_ids))


def test_a_process_that_is_stopped_is_named(training: Any, tmp_path: Path) -> None:
    engine = engine_of(training, tmp_path, "pass", (0, "step"), patience=2)
    os.kill(engine.process_ids[1], signal.SIGSTOP)
    with engine, pytest.raises(WorkerError) as caught:
        engine.iterate()
    assert caught.value.what == "worker 1's process is stopped, and has done no step for 2 s"
    assert all(map(is_gone, engine.process_ids))


def test_a_machine_without_futexes_is_refused(training: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_plan(training.write(tmp_path / "plan"))
    monkeypatch.setattr(shared_peers.platform, "machine", lambda: "aarch64")
    with pytest.raises(UsageError, match="it needs Linux on x86-64"):
        run_with(loaded, RunOptions(engine="processes"))


def test_without_a_gpu_it_says_so(training: Any, tmp_path: Path) -> None:
    if not probe_cuda().missing:
        pytest.skip("there is a GPU")
    loaded = load_plan(training.write(tmp_path / "plan"))
    with pytest.raises(UsageError, match="no GPU can be used"):
        run_with(loaded, RunOptions(engine="processes", device="cuda"))
