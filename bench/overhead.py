"""What the partitioned run costs beside the plain runtime, on the same processors.

    python bench/overhead.py [--models resnet-50,gpt-block] [--workers 1,2,4] [--engine processes]

One training step, median over rounds: the unpartitioned model in one session of ONNX Runtime on all processors, and the
plan's workers sharing them. *Ratio* is of the clock, which other work on the machine disturbs; *processor* is the ratio
of processor time, all threads and their spinning while they wait for each other included. The share in fetches is of
the workers' busy time, waiting left out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from models import MODELS, planned
from rich.console import Console
from rich.table import Table

from planner.runtime.engine.process.supervisor import SupervisedEngine
from planner.runtime.judge.whole import WholeModel
from planner.runtime.measure.profile import profile_of
from planner.runtime.plan_files import load_plan
from planner.runtime.values.state import starting_values
from planner.runtime.values.tiles import load_tiles

ROUNDS = 12
"""The two are measured in turn, so that what else the machine does meets both."""
CALLS = 3
"""In each round, of which the fastest counts."""


def processor_seconds(process_id: int) -> float:
    """What all threads of a process have used."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fastest(run: Callable[[], object]) -> float:
    """The time of the fastest of some calls."""
    times: list[float] = []
    for _ in range(CALLS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default=",".join(MODELS), help="some of them, with commas")
    parser.add_argument("--workers", default="1,2,4", help="numbers, with commas")
    parser.add_argument("--engine", default="local", choices=("local", "processes"))
    options = parser.parse_args()
    table = Table(
        "model", "workers", "ms a step", "plain: ms", "ratio", "processor", "share in fetches", "segments", "fetches"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models.split(","):
            for workers in map(int, options.workers.split(",")):
                plan = load_plan(planned(name, workers, Path(folder)))
                values = starting_values(plan.graph)
                whole = WholeModel(plan.graph)
                child = SupervisedEngine(
                    plan.paths, plan.program.workers, plan.program.state, is_apart=options.engine == "processes"
                )
                with child as engine:
                    load_tiles(engine, values)
                    before = [sum(map(processor_seconds, child.process_ids)), processor_seconds(os.getpid())]
                    pairs = [
                        (fastest(engine.iterate), fastest(lambda whole=whole, values=values: whole.step(values)))  # type: ignore[misc]
                        for _ in range(ROUNDS)
                    ]
                    after = [sum(map(processor_seconds, child.process_ids)), processor_seconds(os.getpid())]
                    used = [one - start for one, start in zip(after, before, strict=True)]
                    profile = profile_of(plan.program, [engine.iterate(timed=True) for _ in range(5)])
                split, plain = (statistics.median(times) for times in zip(*pairs, strict=True))
                table.add_row(
                    name,
                    str(workers),
                    f"{1e3 * split:.2f}",
                    f"{1e3 * plain:.2f}",
                    f"{statistics.median(one / other for one, other in pairs):.2f}",
                    f"{used[0] / used[1]:.2f}",
                    f"{profile.fetch_share:.1%}",
                    str(sum(worker.segments for worker in profile.workers)),
                    str(sum(worker.fetches for worker in profile.workers)),
                )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
