"""Plan quality: bytes moved per training step, beside the papers' and the peers' figures.

    python bench/quality.py                             six workloads on which peers were measured
    python bench/quality.py --zoo [NAME ...]            models of the zoo at 2, 4, 8, 16 workers; none named: all

MB = 1e6 bytes, summed over all workers. "As SoyBean counts" is the paper's convention (n where n-1 parts move). A plan
without a certified gap has "-" there; a workload that has no plan says why.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

import opdefs
from planner import zoo
from planner.errors import TofuError
from planner.graph.model import Graph
from planner.partition.build import partition
from planner.search.decide import decide
from planner.tdl.bind import BoundOp

STRATEGIES = ("data", "tofu")
ZOO_WORKERS = (2, 4, 8, 16)


@dataclass(frozen=True)
class Row:
    """A workload and the best figures known for it."""

    name: str
    model: str
    """Its name in the zoo."""
    batch: int
    workers: int
    data_mb: float
    """What data parallelism moves: peers' measurement, ring, float32."""
    best_mb: float
    source: str


ROWS = (
    Row("MLP 4x8192, batch 512", "mlp-4x8192", 512, 8, 15032.4, 402.7, "hand plan; Alpa's ILP 436.2"),
    Row("MLP 4x8192, batch 2048", "mlp-4x8192", 2048, 8, 15032.4, 1610.6, "hand plan; Alpa's ILP 1744.8"),
    Row("MLP 5x300, batch 400", "mlp-5x300", 400, 16, 54.0, 18.5, "hand plan; SoyBean, section 2.2: 33.6 as it counts"),
    Row(
        "CNN 5x(3x3, 2048), 6x6, batch 256",
        "cnn-5x2048-6",
        256,
        8,
        10569.6,
        2415.9,
        "hand plan 2566.9; a search 2415.9",
    ),
    Row("CNN 5x(3x3, 512), 24x24, batch 256", "cnn-5x512-24", 256, 8, 660.6, 660.6, "data parallelism"),
    Row("GPT 2x1024, 1024 tokens, batch 8", "gpt-2x1024", 8, 8, 1409.5, 1141.0, "hand plan; autoparallel 1141.1"),
)


@dataclass(frozen=True)
class Measured:
    """A plan that was found."""

    strategy: str
    moved_mb: float
    soybean_mb: float
    replicated_share: float
    certified_gap: float | None
    seconds: float

    def cells(self) -> tuple[str, ...]:
        gap = "-" if self.certified_gap is None else f"{self.certified_gap:.2%}"
        return (
            self.strategy,
            f"{self.moved_mb:.1f}",
            f"{self.soybean_mb:.1f}",
            f"{self.replicated_share:.1e}",
            gap,
            f"{self.seconds:.2f}",
        )


MEASURED = ("strategy", "MB", "as SoyBean counts", "replicated work", "gap", "seconds")
"""Headings of ``Measured.cells``."""


def measured(graph: Graph, ops: tuple[BoundOp, ...], workers: int, strategy: str) -> Measured:
    """Plans and partitions; the partitioner's count is the plan's, or this fails."""
    decision = decide(graph, ops, workers, strategy=strategy)
    program = partition(graph, ops, decision.plan).program
    plan = decision.plan
    return Measured(
        strategy,
        plan.moved_bytes / 1e6,
        program.soybean_bytes / 1e6,
        plan.replicated_flop_share,
        plan.certified_gap,
        decision.search_seconds,
    )


def peers(console: Console) -> None:
    """The six workloads."""
    table = Table("workload", "workers", *MEASURED, "best known")
    for row in ROWS:
        graph = zoo.build(row.model, batch=row.batch)
        ops = opdefs.standard().bind_all(graph)
        for strategy in STRATEGIES:
            found = measured(graph, ops, row.workers, strategy)
            known = f"{row.data_mb} (ring)" if strategy == "data" else f"{row.best_mb} ({row.source})"
            table.add_row(row.name, str(row.workers), *found.cells(), known)
    console.print(table)


def _zoo_lines(names: list[str]) -> Iterator[tuple[str, ...]]:
    """A line for each plan, as soon as it is there."""
    for name in names:
        started = time.perf_counter()
        graph = zoo.build(name)
        build_seconds = time.perf_counter() - started
        ops = opdefs.standard().bind_all(graph)
        parameters = sum(graph.tensors[weight].elements for weight in zoo.trained(graph))
        facts = (name, str(len(graph.ops)), f"{parameters:,}", f"{build_seconds:.2f}")
        for workers in ZOO_WORKERS:
            for strategy in STRATEGIES:
                try:
                    cells = measured(graph, ops, workers, strategy).cells()
                except TofuError as error:
                    cells = (strategy, error.what)
                yield (*facts, str(workers), *cells)
                facts = ("", "", "", "")


def models(console: Console, names: list[str]) -> None:
    """Models of the zoo, line by line: the largest take a while."""
    headings = ("model", "ops", "parameters", "build s", "workers", *MEASURED)
    widths = (16, 7, 16, 8, 8, 10, 12, 18, 16, 8, 8)
    for line in (headings, *_zoo_lines(names)):
        console.print("".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=False)), markup=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Bytes that plans move, beside the best figures known.")
    parser.add_argument("--zoo", nargs="*", metavar="NAME", help="models of the zoo at 2, 4, 8 and 16 workers")
    chosen = parser.parse_args().zoo
    console = Console(width=190, highlight=False, soft_wrap=True)
    if chosen is None:
        peers(console)
    else:
        models(console, chosen or list(zoo.names()))


if __name__ == "__main__":
    main()
