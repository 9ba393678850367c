"""Runs that write a checkpoint after every step, killed at random moments: what is left is whole, and nothing is lost.

    python tests/tools/kill_runs.py --seed 1 --count 100 [--ranks 3]

With ranks, the run is by MPI, one of its processes is killed, be it a rank, the process that watches it or the
launcher, and all the others must end within some seconds (else they count as survivors).

After every kill each checkpoint is read and its digests compared (else it counts as torn), and the latest one must be
as late as the latest that was there before the kill (else as lost). Then the run goes on, mostly from there, sometimes
from the beginning, over the checkpoints that are there. At last the state is compared, bit by bit, with that of a run
that nobody killed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

from ranks import environment, launcher

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "planner"]
KEEP = 3


@dataclass
class Outcome:
    """What the kills did."""

    kills: int = 0
    torn: int = 0
    lost: int = 0
    leftovers: int = 0
    """Kills in the middle of a checkpoint: they left something unfinished."""
    steps: int = 0
    """Done in the end."""
    survivors: int = 0
    """Processes that did not end after another one was killed."""
    is_same: bool = False
    """The state is that of a run that nobody killed."""
    swept: bool = False
    """Nothing unfinished is left in the end."""


def steps_in(folder: Path) -> list[int]:
    """Steps of which there is a checkpoint."""
    return sorted(int(entry.name[5:]) for entry in folder.glob("step-*"))


def kill_runs(seed: int, count: int, folder: Path, ranks: int = 0) -> Outcome:
    """Plans a small step, and runs it until it has been killed so many times; by MPI if there are ranks."""
    from planner import api
    from planner.errors import TofuError
    from planner.runtime.plan_files import load_plan
    from planner.runtime.values.checkpoint import Checkpoint
    from planner.unfinished import sweep

    rng = Random(seed)
    api.zoo("mlp-3x64", batch=16, output=folder / "mlp.onnx")
    api.plan(folder / "mlp.onnx", gpus=ranks or 3, out=folder / "plan", effort="quick")
    loaded = load_plan(folder / "plan")
    checkpoints = folder / "ck"
    outcome = Outcome()
    line = ["run", str(folder / "plan"), "--steps", "1000000", "--checkpoint-dir", str(checkpoints)]
    line += ["--checkpoint-every", "1", "--keep", str(KEEP)]
    command = COMMAND
    if ranks:
        command = [launcher() or "mpiexec", "-n", str(ranks), *COMMAND]
        line += ["--engine", "mpi"]
    while outcome.kills < count:
        before = steps_in(checkpoints)
        resumes = bool(before) and rng.random() < 0.8
        outcome.survivors += _kill_one([*command, *line, *(["--resume"] if resumes else [])], checkpoints, rng, ranks)
        outcome.kills += 1
        outcome.leftovers += any(entry.name.startswith(".") for entry in checkpoints.iterdir())
        if rng.random() < 0.5:
            sweep(checkpoints)  # else the next run does
        for step in steps_in(checkpoints):
            try:
                Checkpoint(checkpoints / f"step-{step:08}", loaded.graph, loaded.model_digest)
            except TofuError:
                outcome.torn += 1
        sweep(checkpoints)
        after = steps_in(checkpoints)
        outcome.lost += bool(before) and (not after or after[-1] < before[-1])
    outcome.steps = steps_in(checkpoints)[-1] + 1
    again = api.run(folder / "plan", steps=outcome.steps, checkpoint_dir=checkpoints, resume=True)
    straight = api.run(folder / "plan", steps=outcome.steps)
    outcome.is_same = all(again.results[name].tobytes() == value.tobytes() for name, value in straight.results.items())
    outcome.swept = not any(entry.name.startswith(".") for entry in checkpoints.iterdir())
    return outcome


def _kill_one(line: list[str], checkpoints: Path, rng: Random, ranks: int) -> int:
    """Starts a run and kills it: some soon, most after they have begun to write; how many processes are left."""
    marks = {entry.name: entry.stat().st_mtime_ns for entry in checkpoints.glob("step-*")}
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            line, env=environment(), stdout=subprocess.DEVNULL, stderr=said, start_new_session=True
        )
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            now = {entry.name: _mark(entry) for entry in checkpoints.glob("step-*")}
            if any(mark and marks.get(name) != mark for name, mark in now.items()):
                break
            time.sleep(0.002)
        time.sleep(rng.random() * 0.1)
        all_of_it = [process.pid, *_descendants(process.pid)]
        victim = rng.choice([one for one in all_of_it if b"planner" in _line_of(one)] if ranks else [process.pid])
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        process.wait(30)
        said.seek(0)
        assert process.returncode == -signal.SIGKILL or (ranks and process.returncode), said.read().decode()
    deadline = time.monotonic() + 10
    while (left := sum(map(_is_alive, all_of_it))) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


def _descendants(process_id: int) -> list[int]:
    """Processes that a process has started, and those that they have."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(entry.name))
    found = list(parents.get(process_id, ()))
    for child in tuple(found):
        found += _descendants(child)
    return found


def _line_of(process_id: int) -> bytes:
    try:
        return Path(f"/proc/{process_id}/cmdline").read_bytes()
    except OSError:
        return b""


def _is_alive(process_id: int) -> bool:
    """True for a process that is there, and no zombie."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def _mark(entry: Path) -> int:
    try:
        return entry.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def main() -> int:
    """Kills runs and prints what became of their checkpoints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=0)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory() as folder:
        outcome = kill_runs(options.seed, options.count, Path(folder), options.ranks)
    print(f"seed {options.seed}: {outcome.kills} kills, {outcome.leftovers} of them in the middle of a checkpoint")
    print(
        f"torn: {outcome.torn}, lost: {outcome.lost}, steps in the end: {outcome.steps}, survivors: {outcome.survivors}"
    )
    print(f"state as without kills: {outcome.is_same}; nothing unfinished is left: {outcome.swept}")
    return 0 if outcome.is_same and outcome.swept and not outcome.torn + outcome.lost + outcome.survivors else 1


if __name__ == "__main__":
    sys.exit(main())
