"""Plan quality: bytes moved per training step, beside the papers' and the peers' figures.

    python bench/quality.py

MB = 1e6 bytes, summed over all workers. "As SoyBean counts" is the paper's convention (n where n-1 parts move).
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

import opdefs
from planner.graph.model import Graph
from planner.partition.build import partition
from planner.search.decide import decide
from planner.zoo import mlp


@dataclass(frozen=True)
class Row:
    """A workload and the best figure known for it."""

    name: str
    graph: Graph
    workers: int
    best_known_mb: float
    source: str


ROWS = (
    Row("MLP 5x300, batch 400", mlp(5, 300, 400), 16, 18.5, "hand plan; SoyBean, section 2.2: 33.6 (as it counts)"),
    Row("MLP 4x8192, batch 512", mlp(4, 8192, 512), 8, 402.7, "hand plan"),
    Row("MLP 4x8192, batch 2048", mlp(4, 8192, 2048), 8, 1610.6, "hand plan"),
)


def main() -> None:
    table = Table(
        "workload", "workers", "strategy", "MB", "as SoyBean counts", "replicated work", "seconds", "best known"
    )
    for row in ROWS:
        ops = opdefs.standard().bind_all(row.graph)
        for strategy in ("data", "tofu"):
            decision = decide(row.graph, ops, row.workers, strategy=strategy)
            program = partition(row.graph, ops, decision.plan).program
            table.add_row(
                row.name,
                str(row.workers),
                strategy,
                f"{decision.plan.moved_bytes / 1e6:.1f}",
                f"{program.soybean_bytes / 1e6:.1f}",
                f"{decision.plan.replicated_flop_share:.1e}",
                f"{decision.search_seconds:.2f}",
                f"{row.best_known_mb} ({row.source})" if strategy == "tofu" else "",
            )
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
