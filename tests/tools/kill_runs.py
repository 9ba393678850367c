"""Runs with a log and a checkpoint after every step, killed or interrupted at random moments: nothing is torn or lost.

    python tests/tools/kill_runs.py --seed 1 --count 60 --interrupts 20 [--ranks 3]

With ranks, the run is by MPI, one of its processes is killed, be it a rank, the process that watches it or the
launcher, and all the others must end within some seconds (else they count as survivors). Ctrl-C goes to the launcher.

After every kill each checkpoint is read and its digests compared, and so is each line of the log, whose steps must
follow each other from the first (else it counts as torn). The latest checkpoint must be as late as the latest that was
there before, and the log reach as far (else as lost). After a Ctrl-C the run must also have ended with exit code 130,
its last step kept, and nothing left unfinished (else as unkept). Then the run goes on from there. At last the state is
compared, bit by bit, with that of a run that nobody killed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from ranks import environment, launcher

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "planner"]
KEEP = 3


@dataclass
class Outcome:
    """What the kills did."""

    kills: int = 0
    interrupts: int = 0
    torn: int = 0
    lost: int = 0
    unkept: int = 0
    """Interrupts that did not keep what they should, or ended otherwise."""
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


def kill_runs(seed: int, count: int, folder: Path, ranks: int = 0, interrupts: int = 0) -> Outcome:
    """Plans a small step, and runs it until it was killed and interrupted so many times; by MPI if there are ranks."""
    from planner import api
    from planner.errors import TofuError
    from planner.runtime.plan_files import load_plan
    from planner.runtime.values.checkpoint import Checkpoint
    from planner.unfinished import sweep

    rng = Random(seed)
    api.zoo("mlp-3x64", batch=16, output=folder / "mlp.onnx")
    api.plan(folder / "mlp.onnx", gpus=ranks or 3, out=folder / "plan", effort="quick")
    loaded = load_plan(folder / "plan")
    checkpoints, log, data = folder / "ck", folder / "log.jsonl", folder / "x.npz"
    # Small, since the network has no loss, and diverges on what would be drawn: then no state could be kept.
    np.savez(data, x0=np.random.default_rng(seed).standard_normal((16, 64)).astype(np.float32) / 100)
    checkpoints.mkdir()
    outcome = Outcome()
    line = [
        "run",
        str(folder / "plan"),
        "--inputs",
        str(data),
        "--steps",
        "1000000",
        "--checkpoint-dir",
        str(checkpoints),
    ]
    line += ["--checkpoint-every", "1", "--keep", str(KEEP), "-o", str(log), "--log-every", "1000000"]
    command = COMMAND
    if ranks:
        command = [launcher() or "mpiexec", "-n", str(ranks), *COMMAND]
        line += ["--engine", "mpi"]
    ends = [signal.SIGKILL] * count + [signal.SIGINT] * interrupts
    rng.shuffle(ends)
    for end in ends:
        before = steps_in(checkpoints)
        if not before:
            log.unlink(missing_ok=True)  # of a run that was killed before its first checkpoint
        ended = _end_one([*command, *line, *(["--resume"] if before else [])], checkpoints, rng, ranks, end)
        outcome.survivors += ended.survivors
        left = [entry.name for entry in checkpoints.iterdir() if entry.name.startswith(".") and entry.name != ".lock"]
        if end == signal.SIGKILL:
            outcome.kills += 1
            outcome.leftovers += bool(left)
        else:
            outcome.interrupts += 1
        if rng.random() < 0.5:
            sweep(checkpoints)  # else the next run does
        for step in steps_in(checkpoints):
            try:
                Checkpoint(checkpoints / f"step-{step:08}", loaded.graph, loaded.model_digest)
            except TofuError:
                outcome.torn += 1
        sweep(checkpoints)
        after = steps_in(checkpoints)
        logged = _steps_logged(log)
        outcome.torn += logged is None
        outcome.lost += bool(before) and (not after or after[-1] < before[-1])
        outcome.lost += logged is not None and bool(after) and logged < after[-1]
        if end == signal.SIGINT:
            is_clean = not left and not (checkpoints / ".lock").exists()
            is_kept = bool(after) and after[-1] == logged
            # Before its first step a run is ended at once, and a rank may end all others by a kill.
            outcome.unkept += ended.exit_code != 130 or (ended.had_begun and not (is_clean and is_kept))
    outcome.steps = steps_in(checkpoints)[-1] + 1
    again = api.run(folder / "plan", inputs=data, steps=outcome.steps, checkpoint_dir=checkpoints, resume=True)
    straight = api.run(folder / "plan", inputs=data, steps=outcome.steps)
    outcome.is_same = all(again.results[name].tobytes() == value.tobytes() for name, value in straight.results.items())
    outcome.swept = not any(entry.name.startswith(".") for entry in [*checkpoints.iterdir(), *folder.iterdir()])
    return outcome


def _steps_logged(log: Path) -> int | None:
    """How many steps a log has; None if a line is torn, or its steps do not follow each other from the first."""
    if not log.exists():
        return 0
    text = log.read_text(encoding="utf-8")
    try:
        numbers = [json.loads(line)["step"] for line in text.splitlines()]
    except (ValueError, KeyError):
        return None
    is_whole = not text or text.endswith("\n")
    return len(numbers) if is_whole and numbers == list(range(1, len(numbers) + 1)) else None


@dataclass
class _Ended:
    """How a run ended."""

    exit_code: int
    survivors: int
    """Processes that did not end."""
    had_begun: bool
    """It had written a checkpoint before."""


def _end_one(line: list[str], checkpoints: Path, rng: Random, ranks: int, end: signal.Signals) -> _Ended:
    """Starts a run and kills or interrupts it: some soon, most after they have begun to write."""
    marks = {entry.name: entry.stat().st_mtime_ns for entry in checkpoints.glob("step-*")}
    has_begun = False
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            line,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
            preexec_fn=heed_interrupts,
        )
        deadline = time.monotonic() + 300
        while process.poll() is None and time.monotonic() < deadline and not has_begun:
            now = {entry.name: _mark(entry) for entry in checkpoints.glob("step-*")}
            has_begun = any(mark and marks.get(name) != mark for name, mark in now.items())
            time.sleep(0.002)
        time.sleep(rng.random() * 0.1)
        all_of_it = [process.pid, *_descendants(process.pid)]
        victim = process.pid
        if ranks and end == signal.SIGKILL:
            victim = rng.choice([one for one in all_of_it if b"planner" in _line_of(one)])
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, end)
        process.wait(300)
        said.seek(0)
        if end == signal.SIGKILL:
            assert process.returncode == -signal.SIGKILL or (ranks and process.returncode), said.read().decode()
    deadline = time.monotonic() + 300
    while (left := sum(map(_is_alive, all_of_it))) and time.monotonic() < deadline:
        time.sleep(0.01)
    return _Ended(process.returncode, left, has_begun)


def heed_interrupts() -> None:
    """Before a program is started: it takes Ctrl-C, though a shell that runs tests in the background ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


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
    parser.add_argument("--interrupts", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=0)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory() as folder:
        outcome = kill_runs(options.seed, options.count, Path(folder), options.ranks, options.interrupts)
    print(f"seed {options.seed}: {outcome.kills} kills, {outcome.leftovers} of them in the middle of a checkpoint")
    print(f"{outcome.interrupts} interrupts, {outcome.unkept} of them did not keep what they should")
    print(
        f"torn: {outcome.torn}, lost: {outcome.lost}, steps in the end: {outcome.steps}, survivors: {outcome.survivors}"
    )
    print(f"state as without kills: {outcome.is_same}; nothing unfinished is left: {outcome.swept}")
    wrong = outcome.torn + outcome.lost + outcome.survivors + outcome.unkept
    return 0 if outcome.is_same and outcome.swept and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
