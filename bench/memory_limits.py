"""What less memory costs: plans within a sweep of limits, beside a bound of what any plan must move.

    python bench/memory_limits.py [MODEL ...] [--workers 8] [--limits 6] [--solved 32] [--batch N]

Limits go from what a plan takes at least that moves the fewest bytes, as far as ``tofu plan --memory`` knows, down to
the least that it reaches. Peaks are those of the programs' static layouts. MB = 1e6 bytes.

Beside each plan stands a lower bound: no plan of the search (these cuts, these candidates) moves less whose residence
(``planner.cost.residence``) is within the limit on all workers together at every moment. A lean program never takes
less than its plan's residence, so it is a bound of plans whose lean programs fit. Residence leaves out what depends on
segments and on gaps between buffers: plans are counted in whose programs do not fit, the more the further residence
lies below the peak, which the last column says. It is Lagrangian, by the search's own certificate at prices of memory,
at the best of ``--solved`` prices; a mixture of plans may cost as little, so that a part of a gap no plan could close.

"-": there is no certificate. A bound holds for plans that give one tiling to what the search ties (copies of a
recurrent step): a plan mixed of two need not, and can lie below.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from statistics import median

from rich.console import Console
from strategies import line

from planner import opdefs
from planner.cost.priced import PricedTables
from planner.cost.residence import Residence
from planner.cost.tables import CostTables
from planner.errors import InfeasibleError
from planner.features.zoo.models import build
from planner.planning.bodies import decide_with_bodies
from planner.planning.goal import least_cost
from planner.planning.limit.fit import within
from planner.planning.limit.trial import Trial
from planner.search.decide import decide
from planner.search.effort import HIGHEST_PRICE
from planner.search.memory.prices import cheapest_mixture
from planner.search.request import SearchRequest

MODELS = ("mlp-4x8192", "cnn-5x2048-6", "lenet-5", "alexnet", "rnn-4-8k", "gpt-2x1024")
_TOLERANCE = Fraction(1, 200)
"""The search for a bound ends when it is within 0.5% of the plan."""
HEADS = ("limit MB", "peak MB", "moved MB", "at least MB", "gap", "residence of peak")
WIDTHS = (12, 12, 14, 14, 9, 0)


class Sweep:
    """A model and its plans."""

    def __init__(self, name: str, workers: int, batch: int | None) -> None:
        self.workers = workers
        self.tables = CostTables()
        self.ask = SearchRequest(workers, tables=self.tables)
        graph = build(name, batch=batch)
        decided = decide_with_bodies(graph, opdefs.standard(), self.ask)
        self.first = Trial(decided)
        self.residence = Residence(decided.graph, decided.ops)

    def fitted(self, limit: int) -> Trial:
        """The plan within a limit.

        Raises:
            InfeasibleError: none was found.
        """
        return within(self.first, self.ask, [limit] * self.workers, least_cost(self.tables))

    def least(self) -> int:
        """The smallest memory for each worker that is reached, by asking for none."""
        try:
            return peak(self.fitted(1))
        except InfeasibleError as refused:
            return int(refused.hint.partition("--memory ")[2].partition("B)")[0])

    def most(self) -> int:
        """What is enough for a plan of the fewest bytes: of some of them programs take less."""
        enough = peak(self.first)
        try:
            found = self.fitted(enough - 1)
        except InfeasibleError:
            return enough
        fewest = self.first.decided.cost
        return peak(found) if found.decided.cost <= fewest else enough

    def bound(self, limit: int, found: Trial, most_solved: int) -> float | None:
        """What a plan moves at least whose residence is within a limit on all workers together."""
        plans = [self.first.decided, found.decided]
        tried: list[Mapping[int, Fraction]] = []
        best = Fraction(0)
        while len(tried) < most_solved and best < plans[1].cost * (1 - _TOLERANCE):
            held = [self.residence.of(plan) for plan in plans]
            moments = sorted({int(one.argmax()) for one in held})
            excesses = [(one[moments] - limit * self.workers).tolist() for one in held]
            _, worth = cheapest_mixture([plan.cost for plan in plans], excesses, HIGHEST_PRICE)
            prices = {moment: price for moment, price in zip(moments, worth, strict=True) if price}
            if prices in tried:
                break
            tried.append(prices)
            priced = replace(self.ask, tables=PricedTables(self.tables, self.residence, prices))
            plan = decide(self.first.decided.graph, self.first.decided.ops, priced)
            if plan.lower is not None:
                best = max(best, plan.lower - sum(prices.values(), Fraction(0)) * limit * self.workers)
            plans.append(plan.with_costs(self.tables))
        return float(best) if best > 0 else None


def peak(candidate: Trial) -> int:
    """Of the worker that takes the most."""
    return max(candidate.partitioned.program.peak_bytes)


def rows(sweep: Sweep, limits: Sequence[int], most_solved: int, show: partial[None]) -> Iterator[float]:
    """Prints a row for each limit; yields the gaps."""
    for limit in limits:
        found = sweep.fitted(limit)
        held = sweep.residence.of(found.decided)
        moved = found.decided.cost
        cells = [f"{limit / 1e6:.2f}", f"{peak(found) / 1e6:.2f}", f"{moved / 1e6:.2f}"]
        bound = sweep.bound(limit, found, most_solved)
        if bound is None:
            cells += ["-", "-"]
        else:
            yield moved / bound - 1
            cells += [f"{bound / 1e6:.2f}", f"{moved / bound - 1:.2%}"]
        share = int(held.max()) / sum(found.partitioned.program.peak_bytes)
        show((*cells, f"{share:.0%}"))


def main() -> None:
    parser = argparse.ArgumentParser(description="What plans within a sweep of memory limits move, beside a bound.")
    parser.add_argument("models", nargs="*", default=list(MODELS), help="models of the zoo")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--limits", type=int, default=6, help="how many")
    parser.add_argument("--solved", type=int, default=32, help="searches for each bound at most")
    parser.add_argument("--batch", type=int, help="samples; the paper's unless said")
    chosen = parser.parse_args()
    console = Console(width=200, highlight=False, soft_wrap=True)
    show: partial[None] = partial(line, console, widths=WIDTHS)
    for name in chosen.models:
        sweep = Sweep(name, chosen.workers, chosen.batch)
        most, least = sweep.most(), sweep.least()
        moved = sweep.first.decided.cost
        show(
            (f"\n{name}, {chosen.workers} workers: {moved / 1e6:.2f} MB without a limit, in {most / 1e6:.2f} MB each",)
        )
        show(HEADS)
        steps = range(chosen.limits - 1, -1, -1)
        limits = [least + (most - least) * step // chosen.limits for step in steps]
        gaps = list(rows(sweep, limits, chosen.solved, show))
        if gaps:
            show((f"gap to the bound: {median(gaps):.2%} in the median, {max(gaps):.2%} at worst",))


if __name__ == "__main__":
    main()
