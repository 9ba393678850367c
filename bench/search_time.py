"""How long the search takes: from a graph in memory to a plan, beside what the papers report.

    python bench/search_time.py                     WResNet-152-10 and RNN-10-8K on 8 workers, ICML'18's networks on 4
    python bench/search_time.py --large             as well GPT-3 175B on 64 workers and WResNet-152-10 on 1,024
    python bench/search_time.py --layers            GPTs of 24, 96 and 384 equal blocks on 8 workers
    python bench/search_time.py --plan [MODEL]      the whole of ``tofu plan``, stage by stage: WResNet-152-10
    python bench/search_time.py MODEL:WORKERS ...   any others; --runs 0: without warming up

Searches are ``--effort quick``: a plan, and no bound. With ``--effort normal`` it is bounded, and where that leaves a
gap, plans from further starts are made.

Medians of three after one run that warms up, and the processor's time beside the clock's, since the machine may be
shared. Table entries are the bytes that were counted; eliminated ones those of the tables that eliminations made,
equal ones counted once. The papers' figures are of other machines and of graphs of their own: Tofu, Table 1; ICML'18,
Table 3.
"""

from __future__ import annotations

import argparse
import gc
import resource
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from planner import opdefs
from planner.collection import without_collection
from planner.features.zoo.models import build
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import write_model
from planner.options import ReadOptions
from planner.options.planning import PlanOptions
from planner.planning.folder import Destination
from planner.planning.machines import target_of
from planner.planning.request import PlanRequest, source_of
from planner.planning.result import result_of
from planner.planning.session import Session
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.effort import EFFORTS, EffortName
from planner.search.request import SearchRequest
from planner.spent import Spent

RUNS = 3
HEADS = (
    "model",
    "workers",
    "ops",
    "seconds",
    "processor s",
    "table entries",
    "eliminated entries",
    "MB",
    "gap",
    "reported",
)


@dataclass(frozen=True)
class Row:
    """A model, and how long others take to plan it."""

    model: str
    workers: int
    reported: str


PAPERS = (
    Row("wresnet-152-10", 8, "Tofu 8.3 s; its DP without recursion 8 hours"),
    Row("rnn-10-8k", 8, "Tofu 66.6 s; its DP without recursion more than 24 hours"),
    Row("lenet-5", 4, "ICML'18 0.01 s; depth-first search 5.6 s"),
    Row("alexnet", 4, "ICML'18 0.02 s; depth-first search 2.1 hours"),
    Row("vgg-16", 4, "ICML'18 0.1 s; depth-first search more than 24 hours"),
    Row("inception-v3", 4, "ICML'18 0.4 s; depth-first search more than 24 hours"),
)
LARGE = (Row("gpt3-175b", 64, ""), Row("wresnet-152-10", 1024, ""))
LAYERS = tuple(Row(f"gpt-{blocks}x2048", 8, "") for blocks in (24, 96, 384))


def searched(row: Row, runs: int, effort: EffortName) -> tuple[Graph, Decision, float, float]:
    """The graph, the last decision, and the medians of the clock's and the processor's seconds."""
    graph = build(row.model)
    ops = opdefs.standard().bind_all(graph)
    clock: list[float] = []
    processor: list[float] = []
    for _ in range(runs + 1):
        before = time.process_time()
        decision = decide(graph, ops, SearchRequest(row.workers, effort=effort))
        processor.append(time.process_time() - before)
        clock.append(decision.search_seconds)
    # The first run warms up; it counts where it is the only one.
    return graph, decision, statistics.median(clock[min(1, runs) :]), statistics.median(processor[min(1, runs) :])


def searches(console: Console, rows: tuple[Row, ...], runs: int, effort: EffortName) -> None:
    """A line for each model, as soon as it is there."""
    widths = (18, 9, 8, 10, 12, 15, 18, 14, 9, 0)
    _line(console, HEADS, widths)
    for row in rows:
        graph, decision, clock, processor = searched(row, runs, effort)
        gap = decision.certified_gap
        cells = (
            row.model,
            str(row.workers),
            f"{len(graph.ops):,}",
            f"{clock:.2f}",
            f"{processor:.2f}",
            f"{decision.table_entries:,}",
            f"{decision.eliminated_entries:,}",
            f"{decision.moved_bytes / 1e6:.1f}",
            "-" if gap is None else f"{gap:.2%}",
            row.reported,
        )
        _line(console, cells, widths)


def _line(console: Console, cells: tuple[str, ...], widths: tuple[int, ...]) -> None:
    console.print(" ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)), markup=False)


def stages(console: Console, model: str, workers: int, effort: EffortName) -> None:
    """What ``tofu plan`` does from file to files, and how long each stage takes."""
    heads = ("stage", "seconds", "processor s", "peak MB so far")
    table = Table(*heads, title=f"tofu plan {model} --gpus {workers} --effort {effort}, one run")

    clock, processor = time.perf_counter(), time.process_time()

    def note(stage: str) -> None:
        nonlocal clock, processor
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        passed = time.perf_counter() - clock, time.process_time() - processor
        table.add_row(stage, f"{passed[0]:.2f}", f"{passed[1]:.2f}", f"{peak:.0f}")
        clock, processor = time.perf_counter(), time.process_time()

    with tempfile.TemporaryDirectory() as folder, without_collection():
        file, directory = Path(folder) / "model.onnx", Path(folder) / "plan"
        write_model(build(model), file)
        gc.collect()
        clock, processor = time.perf_counter(), time.process_time()
        source = source_of(file, ReadOptions())
        options = PlanOptions(model=file, effort=effort, recompute="none")
        request = PlanRequest(options, source, target_of(workers, None, None))
        session = Session(request)
        note(f"read, and the canonical form: {len(session.graph.ops):,} ops")
        planned = session.planned()
        note("search")
        program = planned.trial.partitioned.program
        note(f"make {sum(len(worker.steps) for worker in program.workers):,} steps, and place buffers")
        plan = session.complete(planned.trial)
        destination = Destination(directory, force=False)
        destination.write(session, plan, planned.trial)
        written = [one.stat().st_size for one in directory.iterdir()]
        note(f"write {len(written)} files, {sum(written) / 1e6:.0f} MB")
        result_of(session, planned, plan, session.beside(planned, plan)[0], destination, clock, Spent())
        note("count for the summary")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="Seconds and table entries of the search.")
    parser.add_argument("models", nargs="*", metavar="MODEL:WORKERS", help="models of the zoo")
    parser.add_argument("--large", action="store_true", help="as well GPT-3 on 64 workers and WResNet on 1,024")
    parser.add_argument("--layers", action="store_true", help="GPTs of 24, 96 and 384 equal blocks")
    parser.add_argument("--plan", nargs="?", const="wresnet-152-10", metavar="MODEL", help="tofu plan, stage by stage")
    parser.add_argument("--effort", choices=list(EFFORTS), default="quick", help="quick: one plan, no bound")
    parser.add_argument("--runs", type=int, default=RUNS, help="of which the median counts")
    chosen = parser.parse_args()
    console = Console(width=200, highlight=False, soft_wrap=True)
    if chosen.plan:
        name, _, count = chosen.plan.partition(":")
        stages(console, name, int(count or 8), chosen.effort)
    elif chosen.models:
        pairs = [text.partition(":") for text in chosen.models]
        searches(console, tuple(Row(name, int(count or 8), "") for name, _, count in pairs), chosen.runs, chosen.effort)
    elif chosen.layers:
        searches(console, LAYERS, chosen.runs, chosen.effort)
    else:
        searches(console, PAPERS + (LARGE if chosen.large else ()), chosen.runs, chosen.effort)


if __name__ == "__main__":
    main()
