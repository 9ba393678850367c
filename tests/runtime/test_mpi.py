"""Real ranks on this machine: the bits and bytes of ``tofu run``, and what becomes of ranks that fail."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fast_suite import by_night
from planner import api
from planner.runtime.plan_files import load_plan
from planner.runtime.run_report import RunResult
from planner.runtime.values.state import starting_values
from ranks import HARMED, ROOT, TOFU, environment, launch, launch_lines, launcher

pytestmark = pytest.mark.skipif(launcher() is None, reason="there is no mpi4py, or no mpiexec")

Planner = Callable[[str, int], Path]
MODELS = ROOT / "tests" / "models"
BATCH = 8
SMALL = "lenet-5"


@pytest.fixture(scope="session")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Planner:
    """Plans a model of the tests or of the zoo, once."""
    folder = tmp_path_factory.mktemp("plans")

    def make(name: str, workers: int) -> Path:
        model, out = MODELS / f"{name}.onnx", folder / f"{name}-{workers}"
        if not model.exists():
            model = folder / model.name
        if not model.exists():
            api.zoo(name, batch=BATCH, output=model)
        if not out.exists():
            api.plan(model, gpus=workers, out=out, effort="quick")
        return out

    return make


def same_as_local(directory: Path, workers: int, tmp_path: Path) -> None:
    """Three steps by MPI: results, losses and bytes per fetch are those of the engine ``local``."""
    done = launch(workers, "run", directory, "--engine", "mpi", "--steps", 3, "-o", tmp_path / "r.npz", "--json")
    assert (done.code, done.errors) == (0, []), done.err
    local: RunResult = api.run(directory, steps=3)
    told = json.loads(done.out)
    assert told["losses"] == list(local.losses)
    assert told["moved_bytes"] == told["predicted_bytes"] == local.moved_bytes
    assert told["fetches"] == len(local.fetches)  # each of which has moved what was predicted, or the run had failed
    assert told["arena_bytes"] == list(local.arena_bytes)
    with np.load(tmp_path / "r.npz") as results:
        assert {name: results[name].tobytes() for name in results} == {
            name: array.tobytes() for name, array in local.results.items()
        }


def test_two_ranks_give_the_bits_and_the_bytes(plan: Planner, tmp_path: Path) -> None:
    same_as_local(plan(SMALL, 2), 2, tmp_path)


@pytest.mark.parametrize(
    ("name", "workers"),
    by_night(["mlp-5x300", "lenet-5", "rnn-1-1k", "bert_step"], [2, 4, 8], one_of=3, night=[("lenet-5", 8)]),
)
def test_ranks_give_the_bits_and_the_bytes(plan: Planner, tmp_path: Path, name: str, workers: int) -> None:
    same_as_local(plan(name, workers), workers, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 4, 8])
def test_a_run_is_verified(plan: Planner, workers: int) -> None:
    done = launch(workers, "run", plan(SMALL, workers), "--engine", "mpi", "--steps", 3, "--verify", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["verified"] is True
    local = api.run(plan(SMALL, workers), steps=3, verify=True)
    assert (told["max_error"], told["losses"]) == (local.max_error, list(local.losses))


@pytest.mark.slow
def test_a_checkpoint_of_four_ranks_goes_on_anywhere(plan: Planner, tmp_path: Path) -> None:
    """On two ranks, and in one process; with the bits of a run that wrote it in one process."""
    mpi, local = tmp_path / "mpi", tmp_path / "local"
    options = ("--engine", "mpi", "--checkpoint-dir", mpi)
    done = launch(4, "run", plan(SMALL, 4), *options, "--steps", 2, "--checkpoint-every", 1)
    assert done.code == 0, done.err
    api.run(plan(SMALL, 4), steps=2, checkpoint_dir=local, checkpoint_every=1)
    files = {str(path.relative_to(local)): path.read_bytes() for path in sorted(local.rglob("*")) if path.is_file()}
    assert files == {str(path.relative_to(mpi)): path.read_bytes() for path in sorted(mpi.rglob("*")) if path.is_file()}
    anywhere = api.run(plan(SMALL, 2), steps=4, checkpoint_dir=local, resume=True)
    result = tmp_path / "r.npz"
    done = launch(2, "run", plan(SMALL, 2), *options, "--steps", 4, "--resume", "-o", result, "--keep", 1)
    assert done.code == 0, done.err
    assert [entry.name for entry in mpi.iterdir()] == ["step-00000004"]
    with np.load(result) as results:
        assert {name: results[name].tobytes() for name in results} == {
            name: array.tobytes() for name, array in anywhere.results.items()
        }


@pytest.mark.slow
def test_data_weights_and_rates(plan: Planner, tmp_path: Path) -> None:
    directory, batches, weights = plan(SMALL, 4), tmp_path / "batches", tmp_path / "w.safetensors"
    drawn_losses = api.run(directory, steps=2, seed=5, export=weights).losses
    batches.mkdir()
    loaded = load_plan(directory)
    states = {pair.current for pair in loaded.program.state}
    for number in range(2):
        drawn = starting_values(loaded.graph, seed=100 + number)
        np.savez(batches / f"{number}.npz", **{name: value for name, value in drawn.items() if name not in states})
    local = api.run(directory, steps=2, inputs=batches, weights=weights)
    assert local.losses != drawn_losses
    line = ("--engine", "mpi", "--steps", 2, "--inputs", batches, "--weights", weights, "--json")
    done = launch(4, "run", directory, *line, "-o", tmp_path / "after.safetensors")
    assert done.code == 0, done.err
    assert json.loads(done.out)["losses"] == list(local.losses)
    api.run(directory, steps=2, inputs=batches, weights=weights, export=tmp_path / "local.safetensors")
    assert (tmp_path / "after.safetensors").read_bytes() == (tmp_path / "local.safetensors").read_bytes()


PATIENCE = 3
HARMS = [
    ("raise", "worker {w} failed in"),
    ("kill", "worker {w} died by SIGKILL in"),
    ("crash", "worker {w} died by SIGSEGV in"),
    ("exit", "worker {w} ended with exit code 7 in"),
    ("stop", "nothing has been heard of worker {w} (rank {w} on"),
]


def harmed(directory: Path, folder: Path, ranks: int, worker: int, kind: str, says: str) -> None:
    """A harmed worker: all ranks end with exit code 3, and one message says rank, host and step."""
    options = ("--engine", "mpi", "--steps", 1000, "--patience", PATIENCE)
    mark = folder / "mark"
    done = launch(ranks, worker, 40, kind, "run", directory, *options, command=HARMED, HARMED_AT=str(mark))
    assert done.code == 3, done.err
    assert len(done.errors) == 1, done.err
    assert done.errors[0].startswith(f"error: {says.format(w=worker)}"), done.err
    assert f"rank {worker}" in done.err
    assert os.uname().nodename in done.err
    assert "fetch '" in done.err or "segment '" in done.err
    assert mark.exists(), "it has come to the harm"


def test_a_killed_rank_ends_all(plan: Planner, tmp_path: Path) -> None:
    harmed(plan(SMALL, 2), tmp_path, 2, 1, *HARMS[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("worker", "kind", "says"),
    [(3, *harm) for harm in HARMS] + [(0, *harm) for harm in HARMS if harm[0] in ("raise", "stop")],
    ids=[harm[0] for harm in HARMS] + ["raise on rank 0", "stop of rank 0"],
)
def test_a_rank_that_fails_ends_all(plan: Planner, tmp_path: Path, worker: int, kind: str, says: str) -> None:
    harmed(plan(SMALL, 4), tmp_path, 4, worker, kind, says)


def test_too_few_ranks(plan: Planner) -> None:
    done = launch(1, "run", plan(SMALL, 2), "--engine", "mpi")
    assert done.code == 2, done.err
    assert done.errors == [f"error: --engine mpi: {plan(SMALL, 2)} is a plan for 2 workers, and there is 1 rank"]
    assert f"mpiexec -n 2 tofu run {plan(SMALL, 2)} --engine mpi" in done.err


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [3, 5])
def test_as_many_ranks_as_workers(plan: Planner, ranks: int) -> None:
    done = launch(ranks, "run", plan(SMALL, 4), "--engine", "mpi")
    assert done.code == 2, done.err
    assert done.errors == [
        f"error: --engine mpi: {plan(SMALL, 4)} is a plan for 4 workers, and there are {ranks} ranks"
    ]


@pytest.mark.slow
def test_another_plan_or_other_options(plan: Planner) -> None:
    line = ("--engine", "mpi")
    mine, other = ((1, *TOFU, "run", plan(name, 2), *line) for name in (SMALL, "mlp-5x300"))
    done = launch_lines(mine, other)
    assert done.code == 2, done.err
    assert done.errors == ["error: --engine mpi: the ranks do not have the same"]
    assert "rank 1 on" in done.err
    assert "plan.json" in done.err
    assert "worker1.onnx" in done.err
    done = launch_lines(mine, (*mine, "--steps", 2))
    assert done.code == 2, done.err
    assert "--steps 2; rank 0: 1" in done.err


@pytest.mark.slow
def test_other_inputs(plan: Planner, tmp_path: Path) -> None:
    """Of another content, or on one rank alone: refused before anything is loaded, with what differs."""
    for name, value in (("a", 1), ("b", 2)):
        np.savez(tmp_path / f"{name}.npz", x=np.full(3, value))
    line = (1, *TOFU, "run", plan(SMALL, 2), "--engine", "mpi")
    given = ("--inputs", tmp_path / "a.npz", "--weights", tmp_path / "a.npz")
    done = launch_lines((*line, *given), (*line, "--inputs", tmp_path / "b.npz"))
    assert (done.code, done.errors) == (2, ["error: --engine mpi: the ranks do not have the same"]), done.err
    assert "--inputs " in done.err
    assert "--weights not given; rank 0: " in done.err


@pytest.mark.slow
def test_what_all_refuse_is_told_once(plan: Planner, tmp_path: Path) -> None:
    done = launch(4, "run", plan(SMALL, 4), "--engine", "mpi", "--inputs", tmp_path / "none.npz")
    assert (done.code, done.errors) == (2, [f"error: {tmp_path / 'none.npz'} does not exist"]), done.err


def lone(directory: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """One process that no launcher of MPI has started."""
    return subprocess.run(
        [*TOFU, "run", str(directory), "--engine", "mpi", *options],
        env={**environment(), **variables},
        text=True,
        capture_output=True,
        timeout=300,
    )


@pytest.mark.slow
def test_without_a_launcher_the_line_is_told(plan: Planner) -> None:
    done = lone(plan(SMALL, 4))
    assert done.returncode == 2
    assert "there is 1 rank" in done.stderr
    assert "mpiexec -n 4 tofu run" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"WORLD_SIZE": "4", "RANK": "0"}, "torchrun has started 4 processes"),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, "srun has started 4 processes"),
        ({"WORLD_SIZE": "4", "RANK": "2"}, ""),
    ],
)
def test_other_launchers_are_told_from_mpi(plan: Planner, variables: dict[str, str], says: str) -> None:
    done = lone(plan(SMALL, 4), **variables)
    assert done.returncode == 2
    assert says in done.stderr
    assert bool(done.stderr) == bool(says), "the others are silent"


def test_without_mpi4py_the_extra_is_named(tmp_path: Path) -> None:
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("raise ModuleNotFoundError('no mpi4py')\n", encoding="utf-8")
    done = lone(tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert done.returncode == 2
    assert "pip install mpi4py mpich" in done.stderr


def test_gpus_are_refused(tmp_path: Path) -> None:
    done = lone(tmp_path, "--device", "cuda")
    assert done.returncode == 2
    assert "not yet tried on a GPU" in done.stderr
