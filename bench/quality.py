"""Plan quality: bytes moved per training step, beside the papers' and the peers' figures.

    python bench/quality.py                             six workloads on which peers were measured, in all spellings
    python bench/quality.py --zoo [NAME ...]            models of the zoo beside every strategy of the literature
                            --workers 2 4 8 16          on so many workers; no models named: all
                            --effort quick              with less effort, or more; a plan is none the better for less
                            --alone                     the found plan and its gap alone

MB = 1e6 bytes, summed over all workers. "As SoyBean counts" is the paper's convention (n where n-1 parts move). A plan
without a certified gap has "-" there; a workload that has no plan says why. Excess is what repeated and uneven work is
worth in moved bytes (``planner.cost.excess``), and in percent of an even share of computing. Plans are ranked by cost,
moved bytes and excess; no plan should cost more than a strategy of the literature: the last line says where one does.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from strategies import Cost, Model, costs, line

from planner import opdefs
from planner.features.zoo.models import PAPERS, build, names
from planner.graph.core.model import Graph
from planner.graph.rewriting.canonical import canonical
from planner.partition.build import partition
from planner.planning.bodies import decide_with_bodies
from planner.search.decide import STRATEGIES, decide
from planner.search.effort import EFFORTS, EffortName
from planner.search.request import SearchRequest
from planner.training.doors.read import read_step

SHOWN = ("data", "tofu")
ZOO_WORKERS = (2, 4, 8, 16)


@dataclass(frozen=True)
class Row:
    """A workload and the best figures known for it."""

    name: str
    network: str
    """The first part of the names of its files: one for each way to spell it (``tests/tools/spellings.py``)."""
    workers: int
    data_mb: float
    """What data parallelism moves: peers' measurement, ring, float32."""
    best_mb: float
    source: str


ROWS = (
    Row("MLP 4x8192, batch 512", "mlp-4x8192-512", 8, 15032.4, 402.7, "hand plan; Alpa's ILP 436.2"),
    Row("MLP 4x8192, batch 2048", "mlp-4x8192-2048", 8, 15032.4, 1610.6, "hand plan; Alpa's ILP 1744.8"),
    Row("MLP 5x300, batch 400", "mlp-5x300-400", 16, 54.0, 18.5, "hand plan; SoyBean, section 2.2: 33.6 as it counts"),
    Row("CNN 5x(3x3, 2048), 6x6", "cnn-5x2048-6", 8, 10569.6, 2415.9, "hand plan 2566.9; a search 2415.9"),
    Row("CNN 5x(3x3, 512), 24x24", "cnn-5x512-24", 8, 660.6, 660.6, "data parallelism"),
    Row("GPT 2x1024, 1024 tokens, batch 8", "gpt-2x1024", 8, 1409.5, 1141.0, "hand plan; autoparallel 1141.1"),
)
"""Peers planned these with ReLU between the layers and a loss, written in PyTorch or JAX, SGD: so do the files."""
SPELLINGS = Path(__file__).parent.parent / "tests" / "models" / "spellings"


@dataclass(frozen=True)
class Measured:
    """A plan that was found."""

    strategy: str
    moved_mb: float
    soybean_mb: float
    excess_mb: float
    slowest_share: float
    certified_gap: float | None
    seconds: float

    def cells(self) -> tuple[str, ...]:
        gap = "-" if self.certified_gap is None else f"{self.certified_gap:.2%}"
        return (
            self.strategy,
            f"{self.moved_mb:.1f}",
            f"{self.soybean_mb:.1f}",
            f"{self.excess_mb:.1f} ({self.slowest_share - 1:.2%})",
            gap,
            f"{self.seconds:.2f}",
        )


MEASURED = ("strategy", "MB", "as SoyBean counts", "excess MB", "gap", "seconds")
"""Headings of ``Measured.cells``."""


def measured(graph: Graph, workers: int, strategy: str) -> Measured:
    """Plans and partitions; the partitioner's count is the plan's, or this fails."""
    plan = decide_with_bodies(graph, opdefs.standard(), SearchRequest(workers, strategy=strategy))
    program = partition(plan.graph, plan.ops, plan).program
    return Measured(
        strategy,
        plan.moved_bytes / 1e6,
        program.soybean_bytes / 1e6,
        plan.excess_bytes / 1e6,
        plan.slowest_share,
        plan.certified_gap,
        plan.search_seconds,
    )


def peers(console: Console) -> None:
    """The six workloads, in all spellings; data parallelism in the first."""
    table = Table("workload", "spelling", "workers", *MEASURED, "best known")
    for row in ROWS:
        strategies: tuple[str, ...] = SHOWN
        for file in sorted(SPELLINGS.glob(f"{row.network}.*.onnx")):
            graph = canonical(read_step(file)).graph
            spelling = file.name.removeprefix(f"{row.network}.").removesuffix(".onnx")
            for strategy in strategies:
                known = f"{row.data_mb} (ring)" if strategy == "data" else f"{row.best_mb} ({row.source})"
                found = measured(graph, row.workers, strategy)
                table.add_row(row.name, spelling, str(row.workers), *found.cells(), known)
            strategies = ("tofu",)
    console.print(table)


def _zoo_lines(names: list[str], workers: list[int], effort: EffortName) -> Iterator[tuple[str, ...]]:
    """A line for each model and number of workers, as soon as it is there."""
    for name in names:
        started = time.perf_counter()
        model = Model.of(name)
        facts = (name, f"{len(model.graph.ops):,}", f"{time.perf_counter() - started:.1f}")
        for count in workers:
            yield (*facts, str(count), *_beside(list(costs(model, count, STRATEGIES, effort=effort))))
            facts = ("", "", "")


def _beside(found: list[Cost]) -> tuple[str, ...]:
    """The found plan, and the best of the others."""
    own = found[0]
    if own.plan is None:
        return ("no plan", "", "", own.reason)
    gap = own.plan.certified_gap
    moved, excess = f"{own.plan.moved_bytes / 1e6:.1f}", f"{own.plan.excess_bytes / 1e6:.1f}"
    cells = (moved, excess, "-" if gap is None else f"{gap:.2%}", f"{own.seconds:.1f}")
    best = min((cost for cost in found[1:] if cost.plan is not None), key=lambda cost: cost.megabytes, default=None)
    if best is None:
        return (*cells, "none", "", "")
    above = own.megabytes - best.megabytes
    verdict = "yes" if above <= 0 else f"NO, {above / best.megabytes:+.2%}"
    return (*cells, best.strategy, f"{best.megabytes:.1f}", verdict)


def gaps(console: Console, names: list[str], workers: list[int], effort: EffortName) -> None:
    """The found plan of each model, and by how much of the bound it can be above the best one."""
    widths = (16, 8, 8, 12, 10, 16, 8)
    line(console, ("model", "ops", "workers", "MB", "gap", "excess MB", "seconds"), widths)
    for name in names:
        graph = build(name)
        ops = opdefs.standard().bind_all(graph)
        for count in workers:
            decision = decide(graph, ops, SearchRequest(count, effort=effort))
            plan = decision
            gap = "-" if plan.certified_gap is None else f"{plan.certified_gap:.2%}"
            excess = f"{plan.excess_bytes / 1e6:.1f} ({plan.slowest_share - 1:.2%})"
            found = (f"{plan.moved_bytes / 1e6:.1f}", gap, excess)
            line(console, (name, f"{len(ops):,}", str(count), *found, f"{decision.search_seconds:.1f}"), widths)


def models(console: Console, names: list[str], workers: list[int], effort: EffortName) -> None:
    """Models of the zoo, line by line: the largest take a while."""
    name, worse = "", list[str]()
    found = ("MB", "excess MB", "gap", "seconds")
    headings = ("model", "ops", "build s", "workers", *found, "cheapest strategy", "its cost, MB", "at most that")
    widths = (16, 8, 8, 8, 12, 12, 8, 8, 18, 16, 13)
    for cells in itertools.chain((headings,), _zoo_lines(names, workers, effort)):
        line(console, cells, widths)
        name, workers_here, *verdicts = cells[0] or name, cells[3], *cells[10:11]
        worse.extend(f"{name} on {workers_here} workers" for verdict in verdicts if verdict.startswith("NO"))
    line(console, (f"dearer than a strategy: {', '.join(worse) or 'none'}",))


def main() -> None:
    parser = argparse.ArgumentParser(description="Bytes that plans move, beside the best figures known.")
    parser.add_argument("--zoo", nargs="*", metavar="NAME", help="models of the zoo beside all strategies")
    parser.add_argument("--workers", type=int, nargs="+", default=list(ZOO_WORKERS), help="with --zoo")
    parser.add_argument("--alone", action="store_true", help="with --zoo: no strategies beside the found plan")
    parser.add_argument("--effort", choices=list(EFFORTS), default="normal", help="with --zoo: of the search")
    chosen = parser.parse_args()
    console = Console(width=200, highlight=False, soft_wrap=True)
    if chosen.zoo is None:
        peers(console)
    elif chosen.alone:
        gaps(console, chosen.zoo or list(names(PAPERS)), chosen.workers, chosen.effort)
    else:
        models(console, chosen.zoo or list(names(PAPERS)), chosen.workers, chosen.effort)


if __name__ == "__main__":
    main()
