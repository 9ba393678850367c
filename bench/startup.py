"""What a program is made of, and how long its start takes.

    python bench/startup.py [--models gpt-block,cnn] [--workers 1,2,4] [--zoo wresnet-152-10,rnn-10-8k] [--gpus 8]
    python bench/startup.py --zoo all --effort quick

*Plan*: reading, searching and writing, of which *search* is a part. *Load*: reading and checking the plan's files.
*Start*: the workers' process, its sessions (equal segments share one), and what binds them. *First step*: the first
iteration, in which the runtime lays out the memory inside of segments. ``--zoo`` names models of the papers: those are
started, which takes addresses and no memory, and not run, for which they are too large here.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import tempfile
import time
from pathlib import Path

from models import MODELS, trained
from rich.console import Console
from strategies import line

from planner import api
from planner.artifacts.program import Fetch
from planner.features.zoo.models import PAPERS, build, names
from planner.graph.files.to_onnx import write_model
from planner.runtime.engine.process.supervisor import SupervisedEngine
from planner.runtime.plan_files import load_plan
from planner.runtime.values.state import starting_values
from planner.runtime.values.tiles import load_tiles
from planner.search.effort import EFFORTS, EffortName

HEADS = ("model", "workers", "ops", "segments", "sessions", "fetches")
TIMES = ("plan s", "search s", "load s", "start s", "first step s")
WIDTHS = (16, 9, 9, 10, 10, 10, 9, 10, 8, 9, 0)


def measured(train: Path, workers: int, directory: Path, effort: EffortName, *, runs: bool) -> tuple[str, ...]:
    """A row, without the model's name."""
    planned = api.plan(train, gpus=workers, effort=effort, out=directory)
    start = time.perf_counter()
    plan = load_plan(directory)
    loaded = time.perf_counter()
    child = SupervisedEngine(plan.paths, plan.program.workers, plan.program.state)
    with contextlib.closing(child) as engine:
        started = time.perf_counter()
        sessions, first = engine.session_count, "-"
        if runs:
            load_tiles(engine, starting_values(plan.graph))
            first = f"{engine.iterate().seconds:.3f}"
    steps = [step for worker in plan.program.workers for step in worker.steps]
    fetches = sum(isinstance(step, Fetch) for step in steps)
    counts = (workers, len(plan.graph.ops), len(steps) - fetches, sessions, fetches)
    seconds = (planned.total_seconds, planned.search_seconds, loaded - start, started - loaded)
    return (*map(str, counts), *(f"{second:.2f}" for second in seconds), first)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default=",".join(MODELS), help="some of them, with commas")
    parser.add_argument("--workers", default="1,2,4", help="numbers, with commas")
    parser.add_argument("--zoo", default="", help="models of `tofu zoo`, with commas, or `all`, instead")
    parser.add_argument("--gpus", type=int, default=8, help="workers of those")
    parser.add_argument("--effort", choices=list(EFFORTS), default="normal", help="of the search")
    options = parser.parse_args()
    console = Console(width=150, highlight=False)
    line(console, (*HEADS, *TIMES), WIDTHS)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if options.zoo:
            for name in names(PAPERS) if options.zoo == "all" else options.zoo.split(","):
                train, directory = folder / f"{name}.onnx", folder / name
                write_model(build(name), train)
                line(console, (name, *measured(train, options.gpus, directory, options.effort, runs=False)), WIDTHS)
                shutil.rmtree(directory)
                train.unlink()
        else:
            for name in options.models.split(","):
                for workers in map(int, options.workers.split(",")):
                    train, directory = trained(name, folder), folder / f"{name}.{workers}"
                    line(console, (name, *measured(train, workers, directory, options.effort, runs=True)), WIDTHS)


if __name__ == "__main__":
    main()
