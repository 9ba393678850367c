"""Computing as a profile predicts it, beside what the partitioned run takes (ICML'18, Table 4: within 10%).

    python bench/measured_times.py [--models mlp,cnn,gpt-block] [--workers 1,2] [--processor-time]

Each model is profiled on this processor, planned for it, and run: per worker the sum of its ops by the profile, and the
sum of its segments, median over iterations; of the worker that computes longest. Where others use the machine, too,
``--processor-time`` counts what a thread computes and not what it waits; a worker then has one thread, so that there
must be as many workers as processors. A segment is one session of many ops, which ONNX Runtime may fuse, and workers
share memory's bandwidth: of both a profile knows nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from pathlib import Path
from unittest import mock

from models import MODELS, trained
from rich.console import Console
from rich.table import Table

from planner import api
from planner.runtime.engine.core.interface import InProcessEngine
from planner.runtime.engine.core.sessions import cores
from planner.runtime.measure.profile import profile_of
from planner.runtime.plan_files import LoadedPlan, load_plan
from planner.runtime.values.state import starting_values
from planner.runtime.values.tiles import load_tiles

ITERATIONS = 15
WARM_UP = 3
_TOPOLOGY = """\
name: here
device: {{memory: 1TB}}
levels: [{{name: memory, ways: {workers}, bandwidth: 10GB/s}}]
"""


def worker_seconds(plan: LoadedPlan) -> list[float]:
    """What each worker computes in an iteration, median over iterations."""
    with InProcessEngine(plan.models, plan.program.state) as engine:
        load_tiles(engine, starting_values(plan.graph))
        for _ in range(WARM_UP):
            engine.iterate()
        profiles = [profile_of(plan.program, [engine.iterate(timed=True)]) for _ in range(ITERATIONS)]
    workers = range(len(plan.program.workers))
    return [statistics.median(profile.workers[worker].compute_seconds for profile in profiles) for worker in workers]


def row(model: str, workers: int, folder: Path) -> tuple[str, ...]:
    """A model on a number of workers."""
    train = trained(model, folder)
    topology, times = folder / f"{workers}.yaml", folder / f"{model}.{workers}.profile.yaml"
    topology.write_text(_TOPOLOGY.format(workers=workers))
    profiled = api.profile(train, topology=str(topology), out=times)
    directory = folder / f"{model}.{workers}"
    planned = api.plan(train, topology=str(topology), objective="bytes", profile=times, effort="quick", out=directory)
    estimate = planned.plan.estimate
    assert estimate is not None
    assert estimate.sources is not None
    predicted, measured = max(estimate.worker_compute_seconds), max(worker_seconds(load_plan(directory)))
    return (
        model,
        str(workers),
        f"{estimate.sources.measured_ops} of {estimate.sources.ops}",
        f"{1e3 * predicted:.2f}",
        f"{1e3 * measured:.2f}",
        f"{predicted / measured - 1:+.0%}",
        str(len(profiled.profile.ops)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default="mlp,cnn,gpt-block", help=f"some of {', '.join(MODELS)}, with commas")
    parser.add_argument("--workers", default="1,2", help="numbers, with commas")
    parser.add_argument("--processor-time", action="store_true", help="of each thread, not the clock's")
    options = parser.parse_args()
    counts = [int(count) for count in options.workers.split(",")]
    if options.processor_time and min(counts) < cores():
        parser.error(f"--processor-time: with fewer than {cores()} workers, one has several threads")
    table = Table("model", "workers", "ops as measured", "predicted: ms", "run: ms", "error", "parts profiled")
    clock = mock.patch("time.perf_counter", time.thread_time) if options.processor_time else contextlib.nullcontext()
    with tempfile.TemporaryDirectory() as folder, clock:
        for model in options.models.split(","):
            for workers in counts:
                table.add_row(*row(model, workers, Path(folder)))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
