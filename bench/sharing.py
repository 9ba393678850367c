"""What shared deliveries save, beside what they cost: bytes, memory, time of the search.

    python bench/sharing.py [--models lenet-5:8 gpt-2x1024] [--workers 8] [--effort quick normal thorough]

MB = 1e6 bytes over all workers, in an iteration; ``:N`` is a batch of N. Each model is planned as it likes best
("free"), with data that arrive in disjoint tiles ("partitioned"), with activations and gradients cut ("weights") and
with every tensor cut ("none"; ``--replicate``). "Alone" is the plan in which every reader has its own delivery; the
columns of efforts say by how much a plan that shares moves less, and how long both of its searches together take beside
the one without sharing (processor time; with ``quick`` there is no second one). Gap, deliveries and memory (of the
worker that needs most) are those of the last effort. A model all of whose plans pay for nothing twice has "-".
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from planner import opdefs
from planner.collection import without_collection
from planner.cost.tables import CostTables
from planner.errors import InfeasibleError
from planner.features.zoo.models import build
from planner.partition.build import partition
from planner.planning.deliveries import shared
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.effort import EFFORTS, EffortName
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import NO_RULES, Rules

MODELS = (
    *("mlp-4x8192", "mlp-5x300:64", "lenet-5:8", "alexnet:16", "cnn-5x512-24:8", "gpt-2x1024", "rnn-1-1k:64"),
    *("rnn-4-8k", "rnn-6-4k", "rnn-10-4k"),
)


@dataclass(frozen=True)
class Regime:
    """What tilings a plan may have."""

    name: str
    rules: Rules = NO_RULES
    partitioned_inputs: bool = False


REGIMES = (
    Regime("free"),
    Regime("partitioned", partitioned_inputs=True),
    Regime("weights", Rules(replicate="weights")),
    Regime("none", Rules(replicate="none")),
)


@dataclass(frozen=True)
class Measured:
    """A model's plans without sharing and with it."""

    plain: Decision
    found: Decision
    plain_seconds: float
    seconds: float

    @property
    def saved(self) -> float:
        """As a share of what is moved without sharing."""
        before = self.plain.moved_bytes
        return 1 - self.found.moved_bytes / before if before else 0.0


def _timed(make: Callable[[], Decision]) -> tuple[Decision, float]:
    started = time.process_time()
    found = make()
    return found, time.process_time() - started


@without_collection()
def measured(model: str, workers: int, regime: Regime, effort: EffortName) -> Measured:
    """Plans a model without sharing, and then with it.

    Args:
        model: of the zoo, with a batch behind a colon or without.
        workers: how many.
        regime: what tilings it may have.
        effort: of both searches.
    """
    name, _, batch = model.partition(":")
    graph = build(name, batch=int(batch)) if batch else build(name)
    descriptions, tables = opdefs.standard(), CostTables()
    ops = descriptions.bind_all(graph)
    ask = SearchRequest(
        workers,
        rules=regime.rules,
        partitioned_inputs=regime.partitioned_inputs,
        effort=effort,
        tables=tables,
    )
    plain, first = _timed(lambda: decide(graph, ops, ask))
    found, second = _timed(lambda: shared(plain, descriptions, ask))
    return Measured(plain, found, first, first + second)


def _peak_mb(decided: Decision) -> float:
    return max(partition(decided.graph, decided.ops, decided).program.peak_bytes) / 1e6


def _row(model: str, workers: int, regime: Regime, efforts: Sequence[EffortName]) -> list[str]:
    found = [measured(model, workers, regime, effort) for effort in efforts]
    last = found[-1]
    plan = last.found
    gap = "-" if plan.certified_gap is None else f"{plan.certified_gap:.1%}"
    memory = "-"
    if plan.deliveries:
        memory = f"{_peak_mb(last.plain):,.2f} -> {_peak_mb(last.found):,.2f}"
    return [
        model,
        regime.name,
        f"{last.plain.moved_bytes / 1e6:,.2f}",
        *(
            f"{-one.saved:+.1%} x{one.seconds / max(one.plain_seconds, 1e-9):.2f}" if one.saved else "-"
            for one in found
        ),
        gap,
        str(len(plan.deliveries)),
        memory,
    ]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--effort", nargs="+", choices=list(EFFORTS), default=["quick", "normal"])
    arguments = parser.parse_args()
    table = Table(title=f"shared deliveries, {arguments.workers} workers", title_justify="left")
    headings = ("model", "may be", "alone, MB", *arguments.effort, "gap", "deliveries", "memory, MB")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < 2 else "right", no_wrap=True)
    for model in arguments.models:
        for regime in REGIMES:
            try:
                table.add_row(*_row(model, arguments.workers, regime, arguments.effort))
            except InfeasibleError as error:
                table.add_row(model, regime.name, error.what)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
