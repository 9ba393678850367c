"""Memory of the workers: what the plan states, what the run takes, and how near it comes to 1/k.

    python bench/memory.py [--models gpt-block,cnn] [--workers 2,4,8] [--batches]

MB = 1e6 bytes. The first table is the plan's, for the worker that needs most: its *arena*, the tensors *inside* of
segments beside it, and *sum*, both; *x k / whole* is that against 1/k of the same of the plan on one worker. What an
even division does not explain is told for the moment at which the most is there: *fetched* are parts of tensors that
an op needs and the worker does not own, and partial results; *repeated* is by how much tiles are larger than 1/k of
their tensors; *largest* is the buffer that takes the most of these, and *rest* what *x k / whole* is without them. The
plan moves the fewest bytes: one that takes less memory (``tofu plan --memory``) moves more.

The second table is measured, over all workers, in the workers' process: *touched* are the arenas' pages that came to
be used, beside what *arenas* have by the plan; *ORT* is what ONNX Runtime has allocated since its sessions were made:
the tensors *inside*, by the plan, and its kernels' own workspaces. *Worker* is touched and ORT together, for each of
the workers, and *x k / plain* compares it with 1/k of *plain*, what the unpartitioned model takes in one session of
the stock runtime: inputs, outputs and all that the session has allocated.

``--batches``: the largest batch, in steps of half of the model's own, that fits the memory that the unpartitioned
model takes at its own batch; *x* is how many times the largest batch of the whole that is.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from models import MODELS, alone, largest_batch, planned
from rich.console import Console
from rich.table import Table

from planner.partition.occupancy import occupancy
from planner.runtime.engine.process.supervisor import SupervisedEngine
from planner.runtime.judge.whole import WholeModel
from planner.runtime.plan_files import LoadedPlan, load_plan
from planner.runtime.values.state import starting_values
from planner.runtime.values.tiles import load_tiles


def resident_bytes(process_id: int) -> tuple[int, int]:
    """Resident bytes of a process: shared memory, and memory of its own."""
    found = {}
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("RssShmem", "RssAnon"):
            found[name] = 1024 * int(value.split()[0])
    return found["RssShmem"], found["RssAnon"]


def peak_bytes(name: str, workers: int, folder: Path, batch: int) -> int:
    """What the worker that needs most takes, by a plan whose quality nobody asks for: no bound is looked for."""
    directory = planned(name, workers, folder, batch=batch, effort="quick")
    return max(load_plan(directory).program.peak_bytes)


def plain_bytes(directory: Path) -> int:
    """What the unpartitioned model takes in one session: its tensors outside, and what the runtime allocates."""
    graph = load_plan(directory).graph
    model = WholeModel(graph)
    _, before = resident_bytes(os.getpid())
    values = starting_values(graph)
    for _ in range(3):
        made = model.step(values)
        values.update((pair.current, made[pair.following]) for pair in graph.state)
    _, after = resident_bytes(os.getpid())
    return after - before


def excess(plan: LoadedPlan) -> tuple[int, int, str]:
    """What the fullest worker holds at its fullest beyond an even share: fetched, repeated, and the largest of both."""
    workers = plan.program.workers
    fullest = max(workers, key=lambda worker: worker.arena_bytes)
    found = occupancy(plan.program, plan.graph, fullest.worker)
    fetched = repeated = 0
    largest = (0, "")
    for one in found.at(found.fullest):
        name, tensor, size = one.buffer, one.tensor, one.size_bytes
        is_tile = name == tensor and name in plan.graph.tensors
        beyond = size - plan.graph.tensors[name].size_bytes // len(workers) if is_tile else size
        if is_tile:
            repeated += max(0, beyond)
        else:
            fetched += beyond
        largest = max(largest, (beyond, name))
    return fetched, repeated, f"{largest[1]} {_mb(largest[0])}" if largest[0] > 0 else "-"


def measured(plan: LoadedPlan) -> tuple[int, int]:
    """Bytes of arenas that a run touches, and what ONNX Runtime allocates."""
    with contextlib.closing(SupervisedEngine(plan.paths, plan.program.workers, plan.program.state)) as engine:
        load_tiles(engine, starting_values(plan.graph))
        _, before = resident_bytes(engine.process_ids[0])
        for _ in range(3):
            engine.iterate()
        shared, after = resident_bytes(engine.process_ids[0])
    return shared, after - before


def _mb(count: float) -> str:
    return f"{count / 1e6:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default=",".join(MODELS), help="some of them, with commas")
    parser.add_argument("--workers", default="2,4,8", help="numbers, with commas")
    parser.add_argument("--batches", action="store_true", help="the largest batch that fits, instead")
    options = parser.parse_args()
    names, numbers = options.models.split(","), [int(number) for number in options.workers.split(",")]
    with tempfile.TemporaryDirectory() as temporary:
        if options.batches:
            tables = [batches(names, numbers, Path(temporary))]
        else:
            tables = memory(names, numbers, Path(temporary))
    for table in tables:
        Console(width=150).print(table)


def memory(names: Sequence[str], numbers: Sequence[int], folder: Path) -> list[Table]:
    """What is planned, and what is measured."""
    stated = Table(
        "model", "workers", "arena", "inside", "sum", "x k / whole", "fetched", "repeated", "rest", "largest"
    )
    taken = Table(
        "model", "workers", "arenas", "touched", "touched / arenas", "inside", "ORT", "worker", "x k / plain",
    )  # fmt: skip
    for name in names:
        plain = whole = 0
        for workers in (1, *numbers):
            directory = planned(name, workers, folder)
            plan = load_plan(directory)
            peak = max(plan.program.peak_bytes)
            if workers == 1:
                whole, plain = peak, alone(plain_bytes, directory)
                taken.add_row(name, "plain", *("" for _ in range(5)), _mb(plain), "1.00")
            arenas = [worker.arena_bytes for worker in plan.program.workers]
            inside = [worker.workspace_bytes for worker in plan.program.workers]
            fetched, repeated, largest = excess(plan)
            stated.add_row(
                name,
                str(workers),
                *map(_mb, (max(arenas), max(inside), peak)),
                f"{peak * workers / whole:.2f}",
                *map(_mb, (fetched, repeated)),
                f"{(peak - fetched - repeated) * workers / whole:.2f}",
                largest,
            )
            touched, allocated = measured(plan)
            taken.add_row(
                name,
                str(workers),
                *map(_mb, (sum(arenas), touched)),
                f"{touched / sum(arenas):.3f}",
                *map(_mb, (sum(inside), allocated, (touched + allocated) / workers)),
                f"{(touched + allocated) / plain:.2f}",
            )
    return [stated, taken]


def batches(names: Sequence[str], numbers: Sequence[int], folder: Path) -> Table:
    """The largest batch at a limit."""
    table = Table("model", "limit MB", "batch whole", *(f"{cell} on {k}" for k in numbers for cell in ("batch", "x")))
    for name in names:
        own = MODELS[name].batch
        limit = peak_bytes(name, 1, folder, own)
        largest = {
            workers: largest_batch(
                lambda batch, name=name, workers=workers, limit=limit: (  # type: ignore[misc]
                    peak_bytes(name, workers, folder, batch) <= limit
                ),
                2 * workers * own,
                max(1, own // 2),
            )
            for workers in (1, *numbers)
        }
        cells = [cell for k in numbers for cell in (str(largest[k]), f"{largest[k] / largest[1]:.2f}")]
        table.add_row(name, _mb(limit), str(largest[1]), *cells)
    return table


if __name__ == "__main__":
    main()
