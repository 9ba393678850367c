"""How far the products and convolutions of plans are from the least that any schedule moves (docs/search.md).

    python bench/bounds.py [MODEL ...] [--workers 2,8,64] [--strategies tofu,data] [--effort quick] [--most 10]

MB = 1e6 bytes of an iteration over all workers. ``moved`` and ``least`` are sums of what single ops move and of their
bounds, to be compared with each other only: no iteration is bounded by a sum. ``below`` counts ops that move less than
a bound that holds of the plan; it is 0, or a bound is wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rich.console import Console
from strategies import Model, costs, line

from planner.cost.distance import Distance, distances
from planner.cost.tables import CostTables
from planner.search.decision import Decision

MODELS = ("mlp-4x8192", "alexnet", "vgg-16", "resnet-50", "wresnet-50-4", "rnn-4-8k", "gpt-2x1024", "gpt2")
HEADS = ("model", "workers", "strategy", "ops", "moved MB", "least MB", "below", "farthest")
WIDTHS = (16, 8, 16, 6, 12, 12, 6, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=list(MODELS), help="models of the zoo")
    parser.add_argument("--workers", default="2,8,64")
    parser.add_argument("--strategies", default="tofu")
    parser.add_argument("--effort", choices=["quick", "normal", "thorough"], default="quick")
    parser.add_argument("--most", type=int, default=10, help="ops that are farthest from their bounds, over all rows")
    options = parser.parse_args()
    console = Console(width=200, highlight=False, soft_wrap=True)
    line(console, HEADS, WIDTHS)
    farthest: list[tuple[float, str]] = []
    for name in options.models:
        model = Model.of(name)
        for workers in map(int, options.workers.split(",")):
            for cost in costs(model, workers, options.strategies.split(","), effort=options.effort):
                if cost.plan is not None:
                    rows = rows_of(cost.plan)
                    line(console, shown(name, workers, cost.strategy, rows), WIDTHS)
                    where = f"{name} on {workers}, {cost.strategy}"
                    farthest += [(row.excess, f"{where}: {told(row)}") for row in rows if row.excess is not None]
    for _, text in sorted(farthest, key=lambda one: -one[0])[: options.most]:
        line(console, (f"  {text}",))


def rows_of(plan: Decision) -> list[Distance]:
    """The distances of a plan's ops."""
    return list(distances(plan.graph, plan.ops, plan.strategies, plan.tilings, CostTables()))


def bound_of(row: Distance) -> int:
    """The largest bound that holds of the plan."""
    return max(row.as_it_lies_bytes or 0, (row.any_bytes or 0) if row.lies_once else 0)


def shown(name: str, workers: int, strategy: str, rows: Sequence[Distance]) -> tuple[str, ...]:
    """The cells of a row."""
    below = sum(bound_of(row) > row.moved_bytes for row in rows)
    most = max(rows, key=lambda row: row.excess or 0, default=None)
    moved, least = sum(row.moved_bytes for row in rows), sum(map(bound_of, rows))
    cells = (name, str(workers), strategy, str(len(rows)), f"{moved / 1e6:,.1f}", f"{least / 1e6:,.1f}", str(below))
    return (*cells, "-" if most is None or most.excess is None else told(most))


def told(row: Distance) -> str:
    """An op in a line."""
    grid = " ".join(f"{variable}/{ways}" for variable, ways in row.grid.items())
    on_grid = "no grid" if row.grid_bytes is None else f"{row.grid_bytes / 1e6:,.1f} on {grid}"
    return f"{row.op} {row.excess or 0:.2f}x, {row.moved_bytes / 1e6:,.1f} MB, {on_grid}, {row.regime}"


if __name__ == "__main__":
    main()
