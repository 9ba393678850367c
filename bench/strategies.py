"""What each strategy's plan of a model moves: the rows that the tables of the papers' benchmarks are made of.

    python bench/strategies.py MODEL --workers 8 [--batch N] [--memory]

MB = 1e6 bytes of an iteration, summed over all workers. ``--memory`` cuts the program, too, for the peak of a worker.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.console import Console

from planner import opdefs
from planner.artifacts.estimate import TimeEstimate
from planner.cost.seconds.estimate import estimate
from planner.cost.tables import CostTables
from planner.errors import TofuError
from planner.features.zoo.models import build
from planner.graph.core.model import Graph
from planner.machine.topology_file import Machine
from planner.partition.build import partition
from planner.search.decide import STRATEGIES, decide
from planner.search.decision import Decision
from planner.search.effort import EffortName
from planner.search.request import SearchRequest
from planner.tdl.bind import BoundOp


@dataclass(frozen=True)
class Cost:
    """A plan, or why there is none."""

    strategy: str
    plan: Decision | None
    seconds: float
    """Of the search."""
    peak_bytes: int | None = None
    """Of the worker with the largest arrays; None where it was not asked for."""
    soybean_bytes: int | None = None
    """Moved, as SoyBean counts; None where it was not asked for."""
    time: TimeEstimate | None = None
    """Of an iteration; None without a machine."""
    reason: str = ""

    @property
    def megabytes(self) -> float:
        """What the plan costs, moved and excess; infinite where there is no plan."""
        return float("inf") if self.plan is None else self.plan.cost / 1e6

    @property
    def moved_megabytes(self) -> float:
        """What the plan moves; infinite where there is no plan."""
        return float("inf") if self.plan is None else self.plan.moved_bytes / 1e6


@dataclass(frozen=True)
class Model:
    """A training graph with its descriptions, bound once for all strategies."""

    graph: Graph
    ops: tuple[BoundOp, ...]

    @classmethod
    def of(cls, name: str, batch: int | None = None) -> Model:
        """A model of the zoo."""
        graph = build(name, batch=batch)
        return cls(graph, opdefs.standard().bind_all(graph))


def costs(
    model: Model,
    workers: int,
    strategies: Iterable[str],
    *,
    program: bool = False,
    machine: Machine | None = None,
    effort: EffortName = "normal",
) -> Iterator[Cost]:
    """A row for each strategy, as soon as it is there.

    Args:
        model: what is planned.
        workers: how many.
        strategies: names of ``STRATEGIES``.
        program: cut the program, too: its bytes are the plan's, or this fails.
        machine: estimate times for it; wants the program.
        effort: of tofu's own search.
    """
    tables = CostTables()
    for strategy in strategies:
        try:
            plan = decide(
                model.graph, model.ops, SearchRequest(workers, strategy=strategy, effort=effort, tables=tables)
            )
        except TofuError as error:
            yield Cost(strategy, None, 0.0, reason=error.what)
            continue
        if not program:
            yield Cost(strategy, plan, plan.search_seconds)
            continue
        made = partition(model.graph, model.ops, plan).program
        time = None
        if machine is not None:
            time = estimate(model.graph, model.ops, plan.strategies, plan.cuts, made, machine)
        yield Cost(strategy, plan, plan.search_seconds, max(made.peak_bytes), made.soybean_bytes, time)


WIDTHS = (16, 12, 10, 12, 12, 10, 9, 0)


def line(console: Console, cells: Iterable[str], widths: Iterable[int] = WIDTHS) -> None:
    """Prints cells in columns at once: the next row may take a while."""
    console.print(" ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=False)), markup=False)


def shown(cost: Cost, least: float) -> tuple[str, ...]:
    """The cells of a row."""
    if cost.plan is None:
        return (cost.strategy, "no plan", "", "", "", "", "", cost.reason)
    gap = cost.plan.certified_gap
    return (
        cost.strategy,
        f"{cost.megabytes:.1f}",
        f"{cost.megabytes / least:.2f}" if least else "",
        f"{cost.moved_megabytes:.1f}",
        "" if cost.peak_bytes is None else f"{cost.peak_bytes / 1e9:.2f}",
        f"{cost.plan.excess_bytes / 1e6:.1f}",
        "" if gap is None else f"{gap:.2%}",
        f"{cost.seconds:.2f}",
    )


HEADS = ("strategy", "cost, MB", "to tofu's", "moved MB", "GB a worker", "excess MB", "gap", "search s")


def main() -> None:
    parser = argparse.ArgumentParser(description="What each strategy's plan of a model costs and moves.")
    parser.add_argument("model", nargs="?", default="gpt-2x1024", help="a model of the zoo")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--batch", type=int, help="samples; the paper's unless said")
    parser.add_argument("--memory", action="store_true", help="cut the program, too, for a worker's peak")
    chosen = parser.parse_args()
    console = Console(width=200, highlight=False, soft_wrap=True)
    line(console, HEADS)
    least = 0.0
    for cost in costs(Model.of(chosen.model, chosen.batch), chosen.workers, STRATEGIES, program=chosen.memory):
        least = cost.megabytes if cost.strategy == "tofu" else least
        line(console, shown(cost, least))


if __name__ == "__main__":
    main()
