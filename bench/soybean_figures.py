"""SoyBean's Figures 8 and 9 in bytes: data parallelism, model parallelism and its own search, on 2, 4 and 8 workers.

    python bench/soybean_figures.py

Each cell is MB (1e6 bytes) of an iteration over all workers, and in brackets as the paper counts (n parts where n-1
move). The paper's claims: data parallelism loses on MLPs and on CNNs with small images and many filters, it wins over
model parallelism with large images, and SoyBean is never worse than either.
"""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table
from strategies import Cost, Model, costs

STRATEGIES = ("data", "model", "soybean", "tofu")
WORKERS = (2, 4, 8)
FIGURES = (
    ("8a: MLP 4x8192, batch 512", "mlp-4x8192", 512),
    ("8b: MLP 4x8192, batch 2048", "mlp-4x8192", 2048),
    ("8c: MLP 4x12288, batch 2048", "mlp-4x12288", 2048),
    ("9a: CNN 5x(3x3, 2048), 6x6, batch 256", "cnn-5x2048-6", 256),
    ("9b: CNN 5x(3x3, 512), 24x24, batch 256", "cnn-5x512-24", 256),
)


def _cell(cost: Cost) -> str:
    assert cost.soybean_bytes is not None, "the program was cut"
    return f"{cost.moved_megabytes:.1f} ({cost.soybean_bytes / 1e6:.1f})"


def main() -> None:
    argparse.ArgumentParser(description="Bytes of SoyBean's Figures 8 and 9.").parse_args()
    table = Table("figure", "workers", *STRATEGIES, "less of data and model", "soybean at most that")
    for figure, name, batch in FIGURES:
        model = Model.of(name, batch)
        for workers in WORKERS:
            found = {cost.strategy: cost for cost in costs(model, workers, STRATEGIES, program=True)}
            least = min("data", "model", key=lambda strategy: found[strategy].moved_megabytes)
            holds = found["soybean"].moved_megabytes <= found[least].moved_megabytes
            cells = [_cell(found[strategy]) for strategy in STRATEGIES]
            table.add_row(
                figure if workers == WORKERS[0] else "", str(workers), *cells, least, "yes" if holds else "NO"
            )
    Console(width=180).print(table)


if __name__ == "__main__":
    main()
