"""Memory of the workers: what the plan states, what the run takes, and how near it comes to 1/k.

    python bench/memory.py [--models gpt-block,cnn] [--workers 2,4,8] [--batches]

MB = 1e6 bytes. *Arena* and *inside* (the tensors inside of segments, beside the arena) are the largest worker's, as
planned; *sum* is both, and *x k / whole* how it compares with 1/k of the same of the unpartitioned plan. Measured in
the workers' process, over all workers: *touched* are the arenas' pages that came to be used, which stand beside *all
arenas*; *ORT* is what ONNX Runtime has allocated since its sessions were made: *all inside*, and its kernels' own
workspaces, which are what is above it. *x whole* is touched and ORT together, over the same of the unpartitioned run:
what all workers take for what one took.

``--batches``: the largest batch that fits the memory that the unpartitioned model takes at its own batch, in steps of
a quarter of it; *x* is how many times its own batch that is.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from pathlib import Path

from models import MODELS, largest_batch, planned
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


def peak_bytes(name: str, workers: int, folder: Path, batch: int | None = None) -> int:
    """What the worker that needs most takes, by the plan."""
    return max(load_plan(planned(name, workers, folder, batch=batch)).program.peak_bytes)


def measured(name: str, workers: int, folder: Path, whole: int, taken: list[int]) -> tuple[str, ...]:
    """A row: what is planned and what a run takes, which is noted in ``taken``."""
    plan = load_plan(planned(name, workers, folder))
    programs = plan.program.workers
    with contextlib.closing(SupervisedEngine(plan.paths, programs, plan.program.state)) as engine:
        load_tiles(engine, starting_values(plan.graph))
        _, before = resident_bytes(engine.process_id)
        for _ in range(3):
            engine.iterate()
        shared, after = resident_bytes(engine.process_id)
    arenas, inside = ([getattr(one, kind) for one in programs] for kind in ("arena_bytes", "workspace_bytes"))
    peak = max(plan.program.peak_bytes)
    taken.append(shared + after - before)
    figures = (max(arenas), max(inside), peak)
    return (
        name,
        str(workers),
        *(f"{figure / 1e6:.2f}" for figure in figures),
        f"{peak * workers / whole:.2f}",
        *(f"{figure / 1e6:.2f}" for figure in (sum(arenas), shared)),
        f"{shared / sum(arenas):.3f}",
        *(f"{figure / 1e6:.2f}" for figure in (sum(inside), after - before)),
        f"{taken[-1] / taken[0]:.2f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default=",".join(MODELS), help="some of them, with commas")
    parser.add_argument("--workers", default="2,4,8", help="numbers, with commas")
    parser.add_argument("--batches", action="store_true", help="the largest batch that fits, too")
    options = parser.parse_args()
    names, numbers = options.models.split(","), [int(number) for number in options.workers.split(",")]
    measures = Table(
        "model", "workers", "arena", "inside", "sum", "x k / whole", "all arenas", "touched", "touched / all",
        "all inside", "ORT", "x whole",
    )  # fmt: skip
    batches = Table("model", "MB", "batch whole", *(f"{cell} on {k}" for k in numbers for cell in ("batch", "x")))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in names:
            whole = peak_bytes(name, 1, folder)
            taken: list[int] = []
            for workers in (1, *numbers):
                measures.add_row(*measured(name, workers, folder, whole, taken))
            if options.batches:
                own, cells = MODELS[name].batch, []
                for workers in numbers:

                    def fits(batch: int, name: str = name, workers: int = workers, limit: int = whole) -> bool:
                        return peak_bytes(name, workers, folder, batch) <= limit

                    most = largest_batch(fits, 2 * workers * own, max(1, own // 4))
                    cells += [str(most), f"{most / own:.2f}"]
                batches.add_row(name, f"{whole / 1e6:.2f}", str(own), *cells)
    Console(width=150).print(measures)
    if options.batches:
        Console(width=150).print(batches)


if __name__ == "__main__":
    main()
