"""The child process: its answers, its deaths, and that nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harmed_child import HARM, is_gone
from planner.artifacts.program import Arena
from planner.errors import InfeasibleError, ModelError, WorkerError
from planner.options.running import RunOptions
from planner.runtime.engine.process.child_process import ChildProcess
from planner.runtime.engine.process.patience import PatientLines
from planner.runtime.engine.process.supervisor import SupervisedEngine
from planner.runtime.plan_files import load_plan
from planner.runtime.run import run_with
from planner.runtime.values.state import starting_values
from planner.runtime.values.tiles import load_tiles


def engine_of(
    case: Any,
    tmp_path: Path,
    harm: str = "pass",
    place: tuple[int, str] = (2, "update"),
    patience_seconds: float = 60.0,
) -> SupervisedEngine:
    """A started child that does some harm when a worker comes to a segment."""
    loaded = load_plan(case.write(tmp_path / "plan"))
    command: Sequence[str] = (sys.executable, "-P", "-c", HARM.format(place=place, harm=harm))
    engine = SupervisedEngine(
        loaded.paths, loaded.program.workers, loaded.program.state, patience_seconds=patience_seconds, command=command
    )
    load_tiles(engine, starting_values(loaded.graph))
    return engine


def test_the_child_serves_and_ends(training: Any, tmp_path: Path) -> None:
    with engine_of(training, tmp_path) as engine:
        assert isinstance(engine, SupervisedEngine)
        assert engine.session_count == 2
        before = engine.array(0, "W").copy()
        iteration = engine.iterate()
        assert sum(map(sum, iteration.moved_bytes)) == training.program.predicted_bytes
        engine.iterate(advances=True)
        assert not np.array_equal(engine.array(0, "W"), before)
    assert is_gone(engine.process_ids[0])


@pytest.mark.parametrize(("engine", "processes"), [("local", 1), ("processes", 3)])
def test_a_step_is_one_message_and_one_answer(
    engine: str, processes: int, training: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each process, whatever the step reads, learns and is asked for."""
    loaded = load_plan(training.write(tmp_path / "plan"))
    (tmp_path / "data").mkdir()
    for number in range(2):
        np.savez(tmp_path / "data" / f"{number}.npz", X=np.full((6, 3), 0.1 + number, np.float32))
    passed: Counter[str] = Counter()
    send, line = ChildProcess.send, PatientLines.line

    def sent(self: ChildProcess, request: Mapping[str, Any]) -> None:
        passed["down"] += 1
        send(self, request)

    def answered(self: PatientLines, sign: Any) -> tuple[int, bytes]:
        passed["up"] += 1
        return line(self, sign)

    monkeypatch.setattr(ChildProcess, "send", sent)
    monkeypatch.setattr(PatientLines, "line", answered)
    counts = []
    for steps in (2, 7):
        passed.clear()
        result = run_with(loaded, RunOptions(steps=steps, inputs=tmp_path / "data", engine=engine, profile=True))
        assert len(set(result.losses)) == steps
        counts.append(dict(passed))
    assert {way: counts[1][way] - counts[0][way] for way in passed} == {"down": 5 * processes, "up": 5 * processes}


SLOW_COPIES = """
import time
from planner.runtime.engine.core.backend import CpuBackend
from planner.runtime.engine.process import child

copy = CpuBackend.copy

def later(self, target, source):
    time.sleep(0.05)
    copy(self, target, source)

CpuBackend.copy = later
child.main()
"""


@pytest.mark.parametrize("is_apart", [False, True])
def test_a_state_is_fetched_when_its_owner_has_the_next_one(
    is_apart: bool, training: Any, owned: Any, tmp_path: Path
) -> None:
    """The owner is slow to copy it, and begins a step in the same moment as those who fetch it."""
    results = []
    for case in (training, owned):
        loaded = load_plan(case.write(tmp_path / str(len(results))))
        with SupervisedEngine(
            loaded.paths,
            loaded.program.workers,
            loaded.program.state,
            is_apart=is_apart,
            command=(sys.executable, "-P", "-c", SLOW_COPIES),
        ) as engine:
            load_tiles(engine, starting_values(loaded.graph))
            for step in range(3):
                engine.iterate(advances=step > 0)
            results.append([engine.array(0, name).tobytes() for name in ("loss", "W_next")])
    assert results[0] == results[1]


@pytest.mark.parametrize(
    "harm",
    [
        "signal.pthread_kill(threading.get_ident(), signal.SIGSEGV); time.sleep(5)",
        "__import__('ctypes').string_at(0)",
    ],
)
def test_a_worker_that_dies_of_a_signal_is_named(harm: str, training: Any, tmp_path: Path) -> None:
    engine = engine_of(training, tmp_path, harm)
    with engine, pytest.raises(WorkerError) as caught:
        engine.iterate()
    assert caught.value.what == "worker 2 died by SIGSEGV in segment 'update' (ops op of update, update)"
    assert is_gone(engine.process_ids[0])


def test_who_died_is_not_known_so_all_whereabouts_are_told(training: Any, tmp_path: Path) -> None:
    """Every worker is in some step when the system kills the process."""
    waits = "while list(self._exchange.whereabouts[1:]) != [1, 1]: time.sleep(0.01)"
    harm = f"{waits}\n        os.kill(os.getpid(), signal.SIGKILL)"
    engine = engine_of(training, tmp_path, harm, (0, "step"))
    with engine, pytest.raises(WorkerError, match="the workers' process died by SIGKILL") as caught:
        engine.iterate()
    assert caught.value.facts == (
        "worker 0 was in segment 'step' (ops op of step, step)",
        "worker 1 was in fetch 'fetch G.tile'",
        "worker 2 was in fetch 'fetch G.tile'",
    )
    assert "memory" in caught.value.hint


def test_a_child_that_ends_by_itself(training: Any, tmp_path: Path) -> None:
    engine = engine_of(training, tmp_path, "os.write(2, b'a last word\\n'); os._exit(7)", (0, "step"))
    with engine, pytest.raises(WorkerError, match="ended with exit code 7"):
        engine.iterate()


def test_an_exception_in_a_worker_is_told_apart_from_a_death(training: Any, tmp_path: Path) -> None:
    engine = engine_of(training, tmp_path, "raise ValueError('bad luck')", (1, "step"))
    with engine, pytest.raises(WorkerError, match=r"^worker 1 failed in segment 'step'") as caught:
        engine.iterate()
    assert caught.value.facts == ("ValueError: bad luck",)
    assert is_gone(engine.process_ids[0])


def test_a_refused_program_leaves_no_process(training: Any, tmp_path: Path) -> None:
    steps = training.program.workers[0].steps
    wrong = training.with_worker(0, steps=steps[1:])
    loaded = load_plan(wrong.write(tmp_path / "plan"))
    with pytest.raises(ModelError, match="the partitioned program is inconsistent"):
        SupervisedEngine(loaded.paths, loaded.program.workers)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_a_bug_in_the_child_is_a_bug_here(training: Any, tmp_path: Path) -> None:
    engine = engine_of(training, tmp_path)
    with engine, pytest.raises(AssertionError, match="unexpected keyword argument 'dance'"):
        engine._ask({"dance": True})


@pytest.mark.parametrize("meanwhile", ["time.sleep(3600)", "engine.iterate()"], ids=["idle", "in a step"])
def test_children_go_when_their_supervisor_is_killed(meanwhile: str, training: Any, tmp_path: Path) -> None:
    """The workers of a step sleep: one in a segment, the others until it is done."""
    directory = training.write(tmp_path / "plan")
    harm = HARM.format(place=(0, "step"), harm="time.sleep(3600)")
    script = f"""
import sys, time
from pathlib import Path
from planner.runtime.plan_files import load_plan
from planner.runtime.engine.process.supervisor import SupervisedEngine
plan = load_plan(Path({str(directory)!r}))
command = (sys.executable, "-P", "-c", {harm!r})
engine = SupervisedEngine(plan.paths, plan.program.workers, plan.program.state, is_apart=True, command=command)
print(*engine.process_ids, flush=True)
{meanwhile}
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment)
    assert parent.stdout is not None
    children = [int(process_id) for process_id in parent.stdout.readline().split()]
    assert len(children) == 3
    time.sleep(0.5)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    while not all(map(_has_ended, children)):
        time.sleep(0.02)


def _has_ended(process_id: int) -> bool:
    """True if it is gone, or waits for whoever inherited it to take note."""
    status = Path(f"/proc/{process_id}/stat")
    if is_gone(process_id):
        return True
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z"


def test_ctrl_c_stops_the_child(training: Any, tmp_path: Path) -> None:
    harm = "os.kill(os.getppid(), signal.SIGINT); time.sleep(3600)"
    engine = engine_of(training, tmp_path, harm, (0, "step"))
    # A shell that starts the tests in the background has them ignore the signal.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), engine:
            engine.iterate()
    finally:
        signal.signal(signal.SIGINT, handler)
    assert is_gone(engine.process_ids[0])


def test_a_worker_that_hangs_is_named_and_those_that_wait_for_it(training: Any, tmp_path: Path) -> None:
    engine = engine_of(training, tmp_path, "time.sleep(3600)", (0, "step"), patience_seconds=2)
    with engine, pytest.raises(WorkerError) as caught:
        engine.iterate()
    assert caught.value.what == (
        "worker 0 does not end segment 'step' (ops op of step, step): no worker has finished a step for 2 s"
    )
    assert caught.value.facts == (
        "worker 0 is in segment 'step' (ops op of step, step)",
        "worker 1 waits for worker 0 in fetch 'fetch G.tile'",
        "worker 2 waits for worker 0 in fetch 'fetch G.tile'",
    )
    assert "--patience" in caught.value.hint
    assert is_gone(engine.process_ids[0])


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")
def test_a_process_that_is_stopped_does_not_hang_the_run(training: Any, tmp_path: Path) -> None:
    # The signal is the process's: another thread may take it, and this one goes on until then.
    stop = "os.kill(os.getpid(), signal.SIGSTOP); time.sleep(3600)"
    engine = engine_of(training, tmp_path, stop, (0, "step"), patience_seconds=2)
    with engine, pytest.raises(WorkerError) as caught:
        engine.iterate()
    assert caught.value.what == "the workers' process is stopped, and has done no step for 2 s"
    assert any(fact.startswith("worker 0 is in segment 'step' ") for fact in caught.value.facts)
    assert is_gone(engine.process_ids[0])


def test_a_process_that_is_stopped_before_it_has_begun(training: Any, tmp_path: Path) -> None:
    loaded = load_plan(training.write(tmp_path / "plan"))
    command = (sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)")
    with pytest.raises(WorkerError, match="the workers' process is stopped"):
        SupervisedEngine(loaded.paths, loaded.program.workers, patience_seconds=0.5, command=command)


def test_a_termination_of_the_child_alone_changes_nothing(training: Any, tmp_path: Path) -> None:
    with engine_of(training, tmp_path) as engine:
        os.kill(engine.process_ids[0], signal.SIGTERM)
        assert sum(map(sum, engine.iterate().moved_bytes)) == training.program.predicted_bytes


def test_more_memory_than_the_machine_has_is_refused(training: Any, tmp_path: Path) -> None:
    loaded = load_plan(training.write(tmp_path / "plan"))
    huge = replace(loaded.program.workers[0], arena=Arena(2**50, {}, 2**20))
    with pytest.raises(InfeasibleError, match="too little memory for all workers") as caught:
        SupervisedEngine(loaded.paths, (huge, *loaded.program.workers[1:]))
    assert f"they take {2**50 + 2**20 + 0:,}"[:24] in caught.value.facts[0]
