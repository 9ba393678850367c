"""A run that is killed goes on where it was, to the same bits; on another plan, too."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import load, numpy_helper

from fast_suite import chosen, draws
from kill_runs import heed_interrupts, kill_runs
from planner import api
from planner.errors import ModelError
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import write_model
from planner.options.running import RunOptions
from planner.runtime.run import run_with
from ranks import launcher

COMMAND = [sys.executable, "-m", "planner"]


def test_killed_and_resumed(plan_of: Callable[..., Any], mlp_step: Graph, tmp_path: Path) -> None:
    planned = plan_of(mlp_step, 3)
    checkpoints = tmp_path / "ck"
    run = ["run", str(planned.directory), "--steps", "100000", "--lr", "cosine:0.1,0.01,100000"]
    run += ["--checkpoint-dir", str(checkpoints), "--checkpoint-every", "1"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen([*COMMAND, *run], env=environment, stdout=subprocess.DEVNULL)
    while not (checkpoints / "step-00000003").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = max(int(entry.name[5:]) for entry in checkpoints.glob("step-*"))
    wanted = done + 2
    schedule = "cosine:0.1,0.01,100000"
    straight = api.run(planned.directory, steps=wanted, lr=schedule)
    again = api.run(planned.directory, steps=wanted, lr=schedule, checkpoint_dir=checkpoints, resume=True)
    assert again.first_step == done + 1
    for name, array in straight.results.items():
        assert again.results[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("count", draws(6, 60))
def test_killed_and_interrupted_again_and_again(tmp_path: Path, count: int) -> None:
    outcome = kill_runs(0, count, tmp_path, interrupts=count // 3)
    assert (outcome.kills, outcome.torn, outcome.lost) == (count, 0, 0)
    assert (outcome.interrupts, outcome.unkept) == (count // 3, 0)
    assert outcome.is_same
    assert outcome.swept


@pytest.mark.skipif(launcher() is None, reason="there is no mpi4py, or no mpiexec")
@pytest.mark.parametrize("count", draws(6, 20))
def test_ranks_killed_and_interrupted_again_and_again(tmp_path: Path, count: int) -> None:
    outcome = kill_runs(0, count, tmp_path, ranks=3, interrupts=count // 3)
    assert (outcome.kills, outcome.torn, outcome.lost, outcome.survivors) == (count, 0, 0, 0)
    assert (outcome.interrupts, outcome.unkept) == (count // 3, 0)
    assert outcome.is_same
    assert outcome.swept


@pytest.mark.slow
def test_terminated(plan_of: Callable[..., Any], mlp_step: Graph, tmp_path: Path) -> None:
    """As by Ctrl-C: the workers' process ends, and nothing that is half written stays."""
    planned = plan_of(mlp_step, 3)
    checkpoints = tmp_path / "ck"
    run = ["run", str(planned.directory), "--steps", "100000"]
    run += ["--checkpoint-dir", str(checkpoints), "--checkpoint-every", "1", "--keep", "2"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen([*COMMAND, *run], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not (checkpoints / "step-00000003").exists():
        assert process.poll() is None
        time.sleep(0.01)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    workers = [int(pid) for pid in children.read_text().split()] if children.exists() else []
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (143, b"")
    assert err.splitlines()[-1] == b"terminated"
    deadline = time.monotonic() + 60  # a process that has ended is there until its new parent asks for it
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert all(not Path(f"/proc/{pid}").exists() for pid in workers)
    left = sorted(entry.name for entry in checkpoints.iterdir())
    assert len(left) in (2, 3)  # one may be about to go
    assert all(name.startswith("step-") for name in left)


@pytest.mark.slow
def test_interrupted(plan_of: Callable[..., Any], mlp_step: Graph, tmp_path: Path) -> None:
    """One Ctrl-C: the step is finished, kept and told, and the run goes on from there."""
    planned, checkpoints, log = plan_of(mlp_step, 3), tmp_path / "ck", tmp_path / "log.jsonl"
    run = ["run", str(planned.directory), "--steps", "100000", "--checkpoint-dir", str(checkpoints), "-o", str(log)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(
        [*COMMAND, *run],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=heed_interrupts,
    )
    assert process.stderr is not None
    told = []
    for line in process.stderr:
        told.append(line)
        if line.startswith(b"step 3 of 100000  loss "):
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    told += err.splitlines()
    assert process.returncode == 130, told
    done = max(int(entry.name[5:]) for entry in checkpoints.glob("step-*"))
    assert done >= 3
    assert b"interrupted: this step is finished first; Ctrl-C once more ends at once" in told
    saved = f"interrupted after step {done}; saved: {checkpoints}/step-{done:08}; --resume goes on from there"
    assert told[-1] == saved.encode()
    assert len(log.read_text().splitlines()) == done
    assert b"interrupted" in out
    again = api.run(planned.directory, steps=done + 1, checkpoint_dir=checkpoints, resume=True)
    straight = api.run(planned.directory, steps=done + 1)
    assert again.losses == straight.losses[done:]


@pytest.mark.slow
def test_another_plan_goes_on_and_another_model_does_not(
    plan_of: Callable[..., Any], mlp_step: Graph, cnn_step: Graph, tmp_path: Path
) -> None:
    three, four = plan_of(mlp_step, 3), plan_of(mlp_step, 4)
    api.run(three.directory, steps=2, checkpoint_dir=tmp_path / "ck")
    result = api.run(four.directory, steps=4, checkpoint_dir=tmp_path / "ck", resume=True, verify=True)
    assert (result.first_step, result.verified) == (3, True)
    straight = api.run(three.directory, steps=4)
    np.testing.assert_allclose(result.losses, straight.losses[2:], rtol=1e-4)
    write_model(cnn_step, tmp_path / "cnn.onnx")
    api.plan(tmp_path / "cnn.onnx", gpus=2, out=tmp_path / "cnn")
    with pytest.raises(ModelError, match="checkpoint of another model"):
        api.run(tmp_path / "cnn", steps=9, checkpoint_dir=tmp_path / "ck", resume=True)


@pytest.mark.parametrize("workers", chosen([1, 2, 4], fast=[2]))
def test_the_plan_says_what_the_arrays_take(plan_of: Callable[..., Any], cnn_step: Graph, workers: int) -> None:
    planned = plan_of(cnn_step, workers)
    result = run_with(planned.directory, RunOptions(steps=2))
    taken = tuple(one + other for one, other in zip(result.arena_bytes, result.workspace_bytes, strict=True))
    assert taken == planned.result.plan.peak_bytes
    assert result.arena_bytes == planned.result.arena_bytes
    assert result.staging_bytes == (0,) * workers


@pytest.mark.slow
def test_weights_go_from_training_back_into_the_forward_model(plan_of: Callable[..., Any], tmp_path: Path) -> None:
    forward = Path(__file__).parent.parent / "models" / "resnet50.raw.onnx"
    train = tmp_path / "train.onnx"
    api.grad(forward, loss="softmax_cross_entropy", optimizer="sgd", lr=0.01, batch=2, output=train)
    planned = plan_of(train, 2, effort="quick")
    result = api.run(planned.directory, steps=1, export=tmp_path / "trained.onnx", forward=forward)
    assert len(result.exported) > 100
    filled = {entry.name: entry for entry in load(tmp_path / "trained.onnx").graph.initializer}
    for name in result.exported:
        np.testing.assert_array_equal(numpy_helper.to_array(filled[name]), result.results[f"{name}.next"])
