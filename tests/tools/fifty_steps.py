"""Five networks on 1, 2, 3, 4 and 8 workers, fifty steps each: right, as predicted, and the same again.

    python tests/tools/fifty_steps.py [--steps 50] [--models cnn-spatial,lstm] [--workers 2,8] [--folder DIR]

Every step is judged alone, by the rule of ``tofu run --verify``, and what every fetch moves is held against the plan.
Then the network trains on its own, twice: all outputs and losses must have the same bits. A third run is killed after
a checkpoint and resumed, and must end in those bits as well.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import five_models
from planner import api
from planner.runtime.run_report import RunResult

ROOT = Path(__file__).parents[2]
_COMMAND = (sys.executable, "-m", "planner")
_PATIENCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Trial:
    """What fifty steps of a plan showed."""

    judged: RunResult
    """The run in which every step was judged alone."""
    is_repeated: bool
    """Two runs gave the same bits: all outputs, all losses."""
    killed_after: int
    """The checkpoint from which the killed run went on."""
    is_resumed: bool
    """It ended in the same bits."""

    @property
    def are_bytes_equal(self) -> bool:
        """Each fetch moved what the plan predicts; in every step, or the run would have failed."""
        return all(fetch.predicted_bytes == fetch.moved_bytes for fetch in self.judged.fetches)

    @property
    def is_good(self) -> bool:
        """All of it holds."""
        return bool(self.judged.verified) and self.are_bytes_equal and self.is_repeated and self.is_resumed


def trial(plan: Path, steps: int) -> Trial:
    """Puts a plan on trial.

    Args:
        plan: its folder.
        steps: of each run; at least 3, so that a run can be killed between two of them.
    """
    judged = api.run(plan, steps=steps, verify=True)
    first, second = (api.run(plan, steps=steps) for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Path(folder)
        killed_after = _killed(plan, steps, checkpoints)
        resumed = api.run(plan, steps=steps, checkpoint_dir=checkpoints, resume=True)
    assert resumed.first_step == killed_after + 1
    return Trial(judged, same_bits(first, second), killed_after, same_bits(first, resumed))


def same_bits(straight: RunResult, other: RunResult) -> bool:
    """Whether a run ended in the bits of one that did all steps; of losses, those of the steps that it did."""
    return (
        straight.results.keys() == other.results.keys()
        and all(value.tobytes() == other.results[name].tobytes() for name, value in straight.results.items())
        and straight.losses[other.first_step - 1 :] == other.losses
    )


def _killed(plan: Path, steps: int, checkpoints: Path) -> int:
    """Starts a run of many more steps, kills it after a checkpoint; the step of its last one below ``steps``.

    Later checkpoints are taken away: how far the run came before it died is chance.
    """
    # A network without a loss may diverge before it is killed, in steps that nobody looks at.
    arguments = [
        "run",
        str(plan),
        "--allow-nan",
        "--steps",
        "1000000",
        "--checkpoint-dir",
        str(checkpoints),
        "--checkpoint-every",
    ]
    process = subprocess.Popen(
        [*_COMMAND, *arguments, "1"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
    )
    deadline = time.perf_counter() + _PATIENCE_SECONDS
    try:
        while not (checkpoints / f"step-{steps // 2:08}").exists():
            assert process.poll() is None, f"the run ended by itself: {process.returncode}"
            assert time.perf_counter() < deadline, "the run wrote no checkpoint"
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    return _keep_until(checkpoints, steps - 1)


def _keep_until(checkpoints: Path, last: int) -> int:
    """Removes the checkpoints after a step; the step of the newest that is left."""
    kept = 0
    for entry in checkpoints.glob("step-*"):
        number = int(entry.name.removeprefix("step-"))
        if number > last:
            shutil.rmtree(entry)
        else:
            kept = max(kept, number)
    return kept


_HEAD = (
    "model        workers  steps  fetches      bytes  judged  noise      error  right  bytes=  twice  resumed  seconds"
)


def row(name: str, workers: int, found: Trial, seconds: float) -> str:
    """A line of the table."""
    run = found.judged
    marks = "  ".join(
        f"{'yes' if holds else 'NO':>{width}}"
        for holds, width in ((bool(run.verified), 5), (found.are_bytes_equal, 6), (found.is_repeated, 5))
    )
    resumed = f"{'yes' if found.is_resumed else 'NO'} ({found.killed_after})"
    worst = "all noise" if run.max_error is None else f"{run.max_error:.1e}"
    return (
        f"{name:<12} {workers:>7}  {run.steps:>5}  {len(run.fetches):>7}  {run.moved_bytes:>9}  {run.judged_tensors:>6}"
        f"  {run.noise_tensors:>5}  {worst:>9}  {marks}  {resumed:>7}  {seconds:>7.1f}"
    )


def main() -> int:
    """Prints the table; 1 if anything in it does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--models", default=",".join(five_models.WRITERS), help="some of them, with commas")
    parser.add_argument("--workers", default=",".join(map(str, five_models.WORKERS)), help="numbers, with commas")
    parser.add_argument("--folder", type=Path, help="where the plans are kept; else they are removed")
    options = parser.parse_args()
    is_good = True
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        print(_HEAD, flush=True)
        for name in options.models.split(","):
            for workers in map(int, options.workers.split(",")):
                start = time.perf_counter()
                found = trial(five_models.planned(name, workers, folder), options.steps)
                print(row(name, workers, found, time.perf_counter() - start), flush=True)
                is_good = is_good and found.is_good
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
