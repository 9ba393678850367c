"""What a program is made of, and how long its start takes.

    python bench/startup.py

Load: reading and checking the plan's files. Start: the workers' process, its sessions, and what binds them. First step:
the first iteration, in which the runtime lays out the memory inside of segments.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path

from models import MODELS, planned
from rich.console import Console
from rich.table import Table

from planner.program import Fetch
from planner.runtime.plan_files import load_plan
from planner.runtime.state import starting_values
from planner.runtime.supervisor import SupervisedEngine
from planner.runtime.tiles import load_tiles


def main() -> None:
    table = Table("model", "workers", "ops", "segments", "sessions", "fetches", "load s", "start s", "first step s")
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            for workers in (1, 2, 4):
                directory = planned(name, workers, Path(folder))
                start = time.perf_counter()
                plan = load_plan(directory)
                loaded = time.perf_counter()
                child = SupervisedEngine(plan.paths, plan.program.workers, plan.program.state)
                with contextlib.closing(child) as engine:
                    started = time.perf_counter()
                    load_tiles(engine, starting_values(plan.graph))
                    first = engine.iterate().seconds
                    sessions = engine.session_count
                steps = [step for worker in plan.program.workers for step in worker.steps]
                fetches = sum(isinstance(step, Fetch) for step in steps)
                table.add_row(
                    name,
                    str(workers),
                    str(len(plan.graph.ops)),
                    str(len(steps) - fetches),
                    str(sessions),
                    str(fetches),
                    f"{loaded - start:.2f}",
                    f"{started - loaded:.2f}",
                    f"{first:.3f}",
                )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
