"""Memory of the workers: what the plan states, what the run takes, and how near it comes to 1/k.

    python bench/memory.py

MB = 1e6 bytes. Planned: the largest worker's arena, and the tensors inside of its segments beside it; 1/k: of the same
two of the unpartitioned plan. Measured in the workers' process, over all workers: the arenas' pages that were touched,
and what ONNX Runtime has allocated since its sessions were made (the tensors inside of segments, and its kernels' own
workspaces).
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from models import MODELS, planned
from rich.console import Console
from rich.table import Table

from planner.runtime.plan_files import load_plan
from planner.runtime.state import starting_values
from planner.runtime.supervisor import SupervisedEngine
from planner.runtime.tiles import load_tiles


def resident_bytes(process_id: int) -> tuple[int, int]:
    """Resident bytes of a process: shared memory, and memory of its own."""
    found = {}
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("RssShmem", "RssAnon"):
            found[name] = 1024 * int(value.split()[0])
    return found["RssShmem"], found["RssAnon"]


def main() -> None:
    columns = (
        "model",
        "workers",
        "arena",
        "inside",
        "sum",
        "x k / whole",
        "all arenas",
        "touched",
        "all inside",
        "ORT",
    )
    table = Table(*columns)
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            whole = 0
            for workers in (1, 2, 4):
                plan = load_plan(planned(name, workers, Path(folder)))
                programs = plan.program.workers
                peak = max(plan.program.peak_bytes)
                whole = whole or peak
                with contextlib.closing(SupervisedEngine(plan.paths, programs, plan.program.state)) as engine:
                    load_tiles(engine, starting_values(plan.graph))
                    _, before = resident_bytes(engine.process_id)
                    for _ in range(3):
                        engine.iterate()
                    shared, after = resident_bytes(engine.process_id)
                figures = (
                    max(worker.arena_bytes for worker in programs),
                    max(worker.workspace_bytes for worker in programs),
                    peak,
                )
                table.add_row(
                    name,
                    str(workers),
                    *(f"{figure / 1e6:.2f}" for figure in figures),
                    f"{peak * workers / whole:.2f}",
                    f"{sum(worker.arena_bytes for worker in programs) / 1e6:.2f}",
                    f"{sum(worker.workspace_bytes for worker in programs) / 1e6:.2f}",
                    f"{shared / 1e6:.2f}",
                    f"{(after - before) / 1e6:.2f}",
                )
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
