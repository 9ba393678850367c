"""A simulated iteration beside a measured one, of eight networks on two workers, each bound to a core.

    python bench/simulation.py [--models mlp,cnn] [--iterations 15]

In one process, network by network: what a segment and a fetch take beside their ops and bytes (of other networks), what
every part of the plan's ops takes, and iterations of the plan, before and after that; then an iteration is simulated by
these. All is measured in processor time, since others may use the machine. *Ops* are the sum over a worker's ops by the
profile, and with what its segments take beside them; beside it what the segments took, median over iterations, of the
worker that computes longest. *Elapsed* is the simulated iteration beside one in which each step takes what it took of
the processor, in the median, once what it waits for is done. What iterations take by the clock, the fastest and the
median, stands last.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
from models import MODELS, trained
from rich.console import Console
from rich.table import Table

from planner import api
from planner.api.opened import opened
from planner.artifacts.program import Fetch, Program
from planner.artifacts.waits import joined_waits
from planner.cost.seconds.estimate import timed
from planner.features.profile.measuring import PartTimes
from planner.features.zoo.models import build, mlp
from planner.graph.files.to_onnx import write_model
from planner.machine.topology_file import Device, Level, Topology
from planner.progress import silent
from planner.runtime.engine.core.executor import Iteration
from planner.runtime.engine.core.interface import InProcessEngine
from planner.runtime.measure.ops import CpuStopwatch
from planner.runtime.plan_files import LoadedPlan, load_plan
from planner.runtime.values.state import starting_values
from planner.runtime.values.tiles import load_tiles
from planner.simulation.schedule import Task, simulate

WARM_UP = 5
ITERATIONS = 15
WORKERS = 2
NETWORKS = (*MODELS, "lenet-5")
_WIDTHS, _LAYERS = (8, 64, 128, 256, 512), 8
"""Of the networks that tell what steps take beside ops."""


@dataclass(frozen=True, slots=True)
class Row:
    """A network, in seconds."""

    name: str
    ops: float
    called: float
    """With what a segment takes beside its ops."""
    segments: float
    simulated: float
    elapsed: float
    fastest: float
    """By the clock; so is the median."""
    median: float


@dataclass(frozen=True, slots=True)
class Steps:
    """What steps of the engine take of the processor beside ops, in seconds."""

    segment: float
    fetch: float
    per_byte: float

    def machine(self) -> Topology:
        """Two devices whose link is memory."""
        return Topology("here", Device(2**40), (Level("memory", WORKERS, 1 / self.per_byte, self.fetch),))


def perceptrons(folder: Path) -> Sequence[LoadedPlan]:
    """Plans by data parallelism of networks that are none of the eight, the narrowest first."""
    found = []
    for width in _WIDTHS:
        train, directory = folder / f"width-{width}.onnx", folder / f"width-{width}.plan"
        write_model(mlp(_LAYERS, width, 8, learning_rate=1e-6), train)
        api.plan(train, gpus=WORKERS, strategy="data", out=directory)
        found.append(load_plan(directory))
    return found


def medians(program: Program, iterations: Sequence[Iteration]) -> Mapping[Task, float]:
    """What each step takes, median over iterations."""
    return {
        (worker.worker, number): statistics.median(one.timings[worker.worker][number][1] for one in iterations)
        for worker in program.workers
        for number in range(len(worker.steps))
    }


def steps_here(networks: Sequence[LoadedPlan]) -> Steps:
    """What steps take beside ops.

    Segments are those of the narrowest network, whose ops take nothing. Of fetches, a call and a byte are those by
    which the relative errors of all of them have the least squares.

    Args:
        networks: as ``perceptrons`` makes them.
    """
    segments: list[float] = []
    moved: list[tuple[float, float]] = []
    taken: list[float] = []
    for loaded in networks:
        program = loaded.program
        for (worker, number), seconds in medians(program, timed_iterations(loaded, ITERATIONS)).items():
            step = program.workers[worker].steps[number]
            if isinstance(step, Fetch):
                moved.append((1.0, float(step.predicted_bytes)))
                taken.append(seconds)
            elif loaded is networks[0]:
                segments.append(seconds)
    rows, seconds_of = np.array(moved), np.array(taken)
    (fetch, per_byte), *_ = np.linalg.lstsq(rows / seconds_of[:, None], np.ones(len(taken)), rcond=None)
    return Steps(statistics.fmean(segments), float(fetch), float(per_byte))


def timed_iterations(loaded: LoadedPlan, count: int, clock: list[float] | None = None) -> list[Iteration]:
    """Iterations whose steps are timed by what their threads take of the processor.

    Args:
        loaded: the plan.
        count: of them.
        clock: takes what as many others take by the clock.
    """
    engine = InProcessEngine(loaded.models, loaded.program.state)
    with engine:
        bind_to_cores(engine)
        load_tiles(engine, starting_values(loaded.graph))
        for _ in range(WARM_UP):
            engine.iterate()
        if clock is not None:
            clock += [engine.iterate().seconds for _ in range(count)]
        with mock.patch("time.perf_counter", time.thread_time):
            return [engine.iterate(timed=True) for _ in range(count)]


def bind_to_cores(engine: InProcessEngine) -> None:
    """Each worker's thread on a core of its own."""
    cores = sorted(os.sched_getaffinity(0))
    by_ident = {thread.ident: thread.native_id for thread in threading.enumerate()}
    for worker, ident in enumerate(engine.executor.thread_idents):
        os.sched_setaffinity(by_ident[ident] or 0, {cores[worker % len(cores)]})


def on_one_core(work: Callable[[], None]) -> None:
    """Work by a thread that is bound to a core, and whose clock is what it takes of the processor."""

    def run() -> None:
        os.sched_setaffinity(threading.get_native_id(), {min(os.sched_getaffinity(0))})
        with mock.patch("time.perf_counter", time.thread_time):
            work()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(run).result()


def replayed(program: Program, seconds: Mapping[Task, float]) -> float:
    """When the last step ends, if each takes these seconds, once what it waits for is done."""
    waits, ends = joined_waits(program.workers), [[0.0] for _ in program.workers]
    while any(len(mine) <= len(steps) for mine, steps in zip(ends, waits, strict=True)):
        for worker, steps in enumerate(waits):
            mine = ends[worker]
            while len(mine) <= len(steps):
                wanted = steps[len(mine) - 1]
                if any(count >= len(ends[other]) for other, count in wanted.items()):
                    break
                start = max([mine[-1], *(ends[other][count] for other, count in wanted.items())])
                mine.append(start + seconds[worker, len(mine) - 1])
    return max(mine[-1] for mine in ends)


def row(name: str, networks: Sequence[LoadedPlan], iterations: int, folder: Path) -> Row:
    """A network on two workers."""
    if name in MODELS:
        train = trained(name, folder)
    else:
        train = folder / f"{name}.onnx"
        write_model(build(name, batch=256), train)
    directory = folder / f"{name}.plan"
    api.plan(train, gpus=WORKERS, effort="quick", out=directory)
    plan, loaded = opened(directory), load_plan(directory)
    decided, program = plan.folder.plan, loaded.program
    parts: list[PartTimes] = []

    def measure() -> None:
        parts.append(PartTimes(CpuStopwatch(1), 2**33, silent))
        parts[0].measure("ops", plan.graph, ((bound, decided.strategies[bound.op.name].tiling) for bound in plan.ops))

    clock: list[float] = []
    runs = timed_iterations(loaded, iterations, clock)
    on_one_core(measure)
    steps = steps_here(networks)
    runs += timed_iterations(loaded, iterations)  # before and after: what others do meanwhile changes
    took = medians(program, runs)
    profile = parts[0].profile(name, "bench")
    times = timed(plan.graph, plan.ops, decided.strategies, decided.cuts, program, steps.machine(), profile)
    with_calls = {task: seconds + steps.segment for task, seconds in times.segment_seconds.items()}
    simulated = simulate(program, with_calls, times.interconnect, times.devices).seconds
    ops, called, segments = ([0.0] * WORKERS for _ in range(3))
    for worker, number in times.segment_seconds:
        ops[worker] += times.segment_seconds[worker, number]
        called[worker] += with_calls[worker, number]
        segments[worker] += took[worker, number]
    elapsed = replayed(program, took)
    speed = f"{1 / steps.per_byte / 1e9:.1f} GB/s"
    beside = f"{1e6 * steps.segment:.0f} us a segment, {1e6 * steps.fetch:.0f} us a fetch, {speed}"
    print(f"{name}: beside ops {beside}", file=sys.stderr)
    return Row(name, max(ops), max(called), max(segments), simulated, elapsed, min(clock), statistics.median(clock))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default=",".join(NETWORKS), help="some of them, with commas")
    parser.add_argument(
        "--iterations", type=int, default=ITERATIONS, help="measured, by the clock and by the processor"
    )
    options = parser.parse_args()
    columns = (
        "network",
        "ops: ms",
        "and calls: ms",
        "segments: ms",
        "error",
        "simulated: ms",
        "elapsed: ms",
        "error",
        "by the clock: ms",
    )
    table = Table(*columns)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        networks = perceptrons(Path(folder))
        for name in options.models.split(","):
            print(f"{name}: planning and measuring", file=sys.stderr)
            rows.append(row(name, networks, options.iterations, Path(folder)))
    for one in rows:
        ops, elapsed = one.called / one.segments - 1, one.simulated / one.elapsed - 1
        cells = [f"{1e3 * seconds:.2f}" for seconds in (one.ops, one.called, one.segments, one.simulated, one.elapsed)]
        table.add_row(
            one.name,
            *cells[:3],
            f"{ops:+.0%}",
            *cells[3:5],
            f"{elapsed:+.0%}",
            f"{1e3 * one.fastest:.2f} to {1e3 * one.median:.2f}",
        )
    console = Console(width=140)
    console.print(table)
    for what, errors in (
        ("sums over ops", [abs(one.called / one.segments - 1) for one in rows]),
        ("elapsed", [abs(one.simulated / one.elapsed - 1) for one in rows]),
    ):
        console.print(f"{what}: {statistics.median(errors):.0%} off in the median of {len(rows)} networks")


if __name__ == "__main__":
    main()
