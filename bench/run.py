"""The plan beside what one would do without it, at a limit on a worker's memory.

    python bench/run.py [--model gpt-block] [--workers 4] [--memory 20MB] [--batch N] [--rounds 5] [--device cuda]

The ways of Tofu, section 7.1: *ideal* is the unpartitioned model without the limit; *small batch* the same with the
largest batch that fits; *swapping* one device that swaps to host memory (``swapping.py``); *placement* every op whole
on one worker (``placement.py``); *plan* what ``tofu plan --memory`` finds. Without ``--memory`` the limit is 1.5 times
an even share of what the ideal run needs. All are measured on this machine's processors, which the workers share: one
worker's memory is limited, and not its speed. So k workers have no more processors than one, and a swap is a copy in
memory, where a GPU's goes over a bus that all of them share: bytes tell what the time of a copy does not.

``--device cuda`` runs the plans on GPUs, in turn if there are fewer than workers; swapping is to the memory of this
machine and is left out there. Without a GPU it says what is missing.

MB = 1e6 bytes. Each way runs in a process of its own. Peak is of the worker that needs most, the tensors inside of
segments included: as planned for plans, the bytes held on the device for swapping. *Largest batch* is the largest that
fits the limit, searched up to ``--most`` times the batch.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from models import MODELS, alone, largest_batch, planned, trained
from placement import placed
from rich.console import Console
from rich.table import Table
from swapping import SwappingModel, largest_op_bytes

from planner.errors import InfeasibleError, UsageError
from planner.graph.core.model import Graph
from planner.graph.reading.from_onnx import read_model
from planner.runtime.chosen_engine import GPU_COMMAND
from planner.runtime.engine.gpu.devices import require_cuda
from planner.runtime.engine.process.child_process import COMMAND
from planner.runtime.engine.process.supervisor import SupervisedEngine
from planner.runtime.plan_files import load_plan
from planner.runtime.values.state import starting_values
from planner.runtime.values.tiles import load_tiles
from planner.units import parse_bytes


@dataclass(frozen=True, slots=True)
class Measured:
    """One way of training."""

    batch: int
    seconds: float
    """A step, the median."""
    moved_bytes: int
    """Between workers, in a step."""
    swapped_bytes: int
    """Between device and host, both ways."""
    peak_bytes: int


def of_plan(directory: Path, batch: int, rounds: int, gpus: int) -> Measured:
    """Runs a plan, on CPUs if there are no GPUs to be used."""
    plan = load_plan(directory)
    devices = [worker % gpus for worker in range(len(plan.program.workers))] if gpus else None
    command = COMMAND if devices is None else GPU_COMMAND
    with SupervisedEngine(
        plan.paths, plan.program.workers, plan.program.state, device_map=devices, command=command
    ) as engine:
        load_tiles(engine, starting_values(plan.graph))
        engine.iterate()
        done = [engine.iterate() for _ in range(rounds)]
    moved = sum(sum(worker) for worker in done[-1].moved_bytes)
    return Measured(batch, statistics.median(one.seconds for one in done), moved, 0, max(plan.program.peak_bytes))


def of_swapping(train: Path, batch: int, limit_bytes: int, rounds: int) -> Measured:
    """Runs a model on one device of limited memory."""
    graph = read_model(train)
    model = SwappingModel(graph, starting_values(graph), limit_bytes, is_shared=True)
    model.step()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        done = model.step()
        seconds.append(time.perf_counter() - start)
    return Measured(batch, statistics.median(seconds), 0, done.in_bytes + done.out_bytes, done.peak_bytes)


class Bench:
    """The ways to train a model, measured under one limit."""

    def __init__(self, name: str, workers: int, batch: int, limit_bytes: int, folder: Path) -> None:
        self.name, self.workers, self.batch, self.limit_bytes, self.folder = name, workers, batch, limit_bytes, folder

    def plan_fits(self, workers: int) -> Callable[[int], bool]:
        """Whether the plan for some workers fits, by batch."""
        return lambda batch: self.plan(workers, batch) is not None

    def placement_fits(self, batch: int) -> bool:
        """Whether operator placement fits."""
        return self._peak(self.placed(batch)) <= self.limit_bytes

    def swapping_fits(self, batch: int) -> bool:
        """Whether every op alone fits; the rest is swapped."""
        return largest_op_bytes(self._graph(batch)) <= self.limit_bytes

    def plan(self, workers: int, batch: int) -> Path | None:
        """The plan under the limit; None if there is none. On one worker there is but one plan, which fits or not."""
        if workers == 1:
            directory = planned(self.name, 1, self.folder, batch=batch)
            return directory if self._peak(directory) <= self.limit_bytes else None
        try:
            return planned(self.name, workers, self.folder, batch=batch, limit_bytes=self.limit_bytes)
        except InfeasibleError:
            return None

    def placed(self, batch: int) -> Path:
        """The plan of operator placement."""
        return placed(trained(self.name, self.folder, batch=batch), self.workers, self.folder)

    def _graph(self, batch: int) -> Graph:
        return read_model(trained(self.name, self.folder, batch=batch))

    def _peak(self, directory: Path) -> int:
        return max(load_plan(directory).program.peak_bytes)


def gpus_there() -> int:
    """How many GPUs there are; asked in a process of its own, so that the one that measures finds them free.

    Raises:
        UsageError: no GPU can be used.
    """
    return require_cuda()[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", choices=list(MODELS), default="gpt-block")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--memory", help="of each worker, such as 20MB")
    parser.add_argument("--batch", type=int, help="of all ways but the small batch; the model's own if left out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where plans are run")
    parser.add_argument("--most", type=int, default=8, help="the largest batch tried, in batches")
    options = parser.parse_args()
    try:
        gpus = alone(gpus_there) if options.device == "cuda" else 0
    except UsageError as error:
        sys.exit("\n".join((f"error: {error.what}", *error.facts, f"hint: {error.hint}")))
    batch = options.batch or MODELS[options.model].batch
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        whole = planned(options.model, 1, folder, batch=batch)
        needed = max(load_plan(whole).program.peak_bytes)
        limit = parse_bytes(options.memory, "--memory") if options.memory else 3 * needed // (2 * options.workers)
        show(Bench(options.model, options.workers, batch, limit, folder), options.rounds, options.most * batch, gpus)


def show(bench: Bench, rounds: int, most: int, gpus: int) -> None:
    """Measures all ways and prints the table."""
    batch, limit = bench.batch, bench.limit_bytes
    title = f"{bench.name}, {bench.workers} workers of {limit / 1e6:.2f} MB each, batch {batch}"
    table = Table(
        "way", "batch", "ms a step", "samples/s", "moved MB", "swapped MB", "peak MB", "fits", "largest batch"
    )
    table.title = title

    def add(way: str, found: Measured | None, largest: int | None) -> None:
        batches = "" if largest is None else f"{largest}{'+' if largest == most else ''}"
        if found is None:
            table.add_row(way, *("-" for _ in range(6)), "no", batches)
            return
        table.add_row(
            way,
            str(found.batch),
            f"{1e3 * found.seconds:.1f}",
            f"{found.batch / found.seconds:.1f}",
            f"{found.moved_bytes / 1e6:.2f}",
            f"{found.swapped_bytes / 1e6:.2f}",
            f"{found.peak_bytes / 1e6:.2f}",
            "yes" if found.peak_bytes <= limit else "no",
            batches,
        )

    add("ideal, no limit", alone(of_plan, planned(bench.name, 1, bench.folder, batch=batch), batch, rounds, gpus), None)
    small = largest_batch(bench.plan_fits(1), most)
    for way, plan, used, largest in (
        ("small batch", bench.plan(1, small) if small else None, small, small),
        ("placement", bench.placed(batch), batch, largest_batch(bench.placement_fits, most)),
        ("plan", bench.plan(bench.workers, batch), batch, largest_batch(bench.plan_fits(bench.workers), most)),
    ):
        add(way, None if plan is None else alone(of_plan, plan, used, rounds, gpus), largest)
    if gpus:
        Console(width=150).print(table)
        return
    train = trained(bench.name, bench.folder, batch=batch)
    swapped = alone(of_swapping, train, batch, limit, rounds) if bench.swapping_fits(batch) else None
    add("swapping", swapped, largest_batch(bench.swapping_fits, most))
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
