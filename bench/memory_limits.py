"""What less memory costs: plans within a sweep of limits, beside a bound of what any plan must move.

    python bench/memory_limits.py [MODEL ...] [--workers 8] [--limits 6] [--batch N]

Limits go from what the program of the plan without a limit takes down to the least that ``tofu plan --memory`` reaches.
Peaks are those of the programs' static layouts. MB = 1e6 bytes.

Two lower bounds stand beside each plan, both Lagrangian: the least of bytes moved and priced residence
(``planner.cost.residence``) over all plans of the search (these cuts, these candidates), less what the room is worth.

- "in the limit": no plan whose residence is within the limit on all workers together moves less. Residence leaves out
  what depends on segments and on gaps between buffers, so plans are counted in here whose programs do not fit, and so
  are mixtures of plans: the truth lies between this bound and the plan. The last column says how much of the peak
  residence is.
- "as lean": no plan that holds at no moment more than the found one moves less. This bound knows of the limit only by
  the plan: it says that the prices lead to the best plan of its residence, and nothing of a better one that uses the
  limit better. Where a row moves more than one with less memory, that is what it does not see.

A bound is only as good as the search's own certificate at its prices: "-" where there is none. It holds for plans that
give one tiling to what the search ties (copies of a recurrent step): a plan mixed of two need not, and can lie below.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from strategies import line

import opdefs
from planner import zoo
from planner.api.fitting import Candidate, candidate_of, fewest_bytes, within
from planner.cost.priced import PricedTables, rounded
from planner.cost.residence import Residence
from planner.cost.tables import CostTables
from planner.errors import InfeasibleError
from planner.search.composites import Decided, decide_with_bodies
from planner.search.decide import Decision, decide
from planner.search.memory_limit import HIGHEST_PRICE
from planner.search.memory_prices import cheapest_mixture

MODELS = ("mlp-4x8192", "cnn-5x2048-6", "lenet-5", "alexnet", "rnn-4-8k", "gpt-2x1024")
ROUNDS = 12
"""Prices at which a bound is looked for at most."""
BOUNDS = ("in the limit", "as lean")
HEADS = ("limit MB", "peak MB", "moved MB", BOUNDS[0], "gap", BOUNDS[1], "gap", "residence of peak")
WIDTHS = (12, 12, 14, 14, 9, 14, 9, 0)

Ints = NDArray[np.int64]


class Sweep:
    """A model and its plans."""

    def __init__(self, name: str, workers: int, batch: int | None) -> None:
        self.workers = workers
        self.tables = CostTables()
        graph = zoo.build(name, batch=batch)
        decided = decide_with_bodies(graph, opdefs.standard(), workers, tables=self.tables)
        self.first = candidate_of(decided)
        self.residence = Residence(decided.graph, decided.ops)
        self._known: list[tuple[int, Ints]] = [self._facts(self.first)]

    def fitted(self, limit: int) -> Candidate:
        """The plan within a limit.

        Raises:
            InfeasibleError: none was found.
        """

        def again(planned: Decided, charged: CostTables) -> Decision:
            return decide(planned.graph, planned.ops, self.workers, tables=charged, effort="quick")

        return within(self.first, again, [limit] * self.workers, fewest_bytes(self.tables), self.tables)

    def least(self) -> int:
        """The smallest memory for each worker that is reached, by asking for none."""
        try:
            return peak(self.fitted(1))
        except InfeasibleError as refused:
            return int(refused.hint.partition("--memory ")[2].partition("B)")[0])

    def bound(self, room: Ints, found: Candidate) -> float | None:
        """What a plan moves at least whose residence is nowhere above ``room``, by moment."""
        self._known.append(self._facts(found))
        best: float | None = None
        tried: list[tuple[object, ...]] = []
        for _ in range(ROUNDS):
            moments = sorted({int((held - room).argmax()) for _, held in self._known})
            excesses = [(held[moments] - room[moments]).tolist() for _, held in self._known]
            mixture = cheapest_mixture([moved for moved, _ in self._known], excesses, HIGHEST_PRICE)
            prices = {moment: rounded(price) for moment, price in zip(moments, mixture.prices, strict=True) if price}
            if tuple(prices.items()) in tried:
                break
            tried.append(tuple(prices.items()))
            decided = self.first.decided
            priced = PricedTables(self.tables, self.residence, prices)
            decision = decide(decided.graph, decided.ops, self.workers, tables=priced)
            gap = decision.plan.certified_gap
            self._known.append(self._facts(candidate_of(replace(decided, decision=decision), self.tables)))
            if gap is not None:
                least = decision.plan.moved_bytes / (1 + gap)
                value = least - float(sum(price * int(room[moment]) for moment, price in prices.items()))
                best = value if best is None else max(best, value)
        return best if best is not None and best > 0 else None

    def _facts(self, candidate: Candidate) -> tuple[int, Ints]:
        plan = candidate.decided.decision.plan
        return plan.moved_bytes, self.residence.of(plan)


def peak(candidate: Candidate) -> int:
    """Of the worker that takes the most."""
    return max(candidate.partitioned.program.peak_bytes)


def rows(sweep: Sweep, limits: Sequence[int], show: partial[None]) -> Iterator[tuple[str, float]]:
    """Prints a row for each limit; yields the gaps by the name of the bound."""
    for limit in limits:
        found = sweep.fitted(limit)
        held = sweep.residence.of(found.decided.decision.plan)
        moved = found.decided.decision.plan.moved_bytes
        cells = [f"{limit / 1e6:.2f}", f"{peak(found) / 1e6:.2f}", f"{moved / 1e6:.2f}"]
        for name, room in zip(BOUNDS, (np.full_like(held, limit * sweep.workers), held), strict=True):
            bound = sweep.bound(room, found)
            if bound is None:
                cells += ["-", "-"]
                continue
            yield name, moved / bound - 1
            cells += [f"{bound / 1e6:.2f}", f"{moved / bound - 1:.2%}"]
        share = int(held.max()) / sum(found.partitioned.program.peak_bytes)
        show((*cells, f"{share:.0%}"))


def main() -> None:
    parser = argparse.ArgumentParser(description="What plans within a sweep of memory limits move, beside a bound.")
    parser.add_argument("models", nargs="*", default=list(MODELS), help="models of the zoo")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--limits", type=int, default=6, help="how many")
    parser.add_argument("--batch", type=int, help="samples; the paper's unless said")
    chosen = parser.parse_args()
    console = Console(width=200, highlight=False, soft_wrap=True)
    show: partial[None] = partial(line, console, widths=WIDTHS)
    for name in chosen.models:
        sweep = Sweep(name, chosen.workers, chosen.batch)
        most, least = peak(sweep.first), sweep.least()
        moved = sweep.first.decided.decision.plan.moved_bytes
        show(
            (f"\n{name}, {chosen.workers} workers: {moved / 1e6:.2f} MB without a limit, in {most / 1e6:.2f} MB each",)
        )
        show(HEADS)
        steps = range(chosen.limits - 1, -1, -1)
        found = list(rows(sweep, [least + (most - least) * step // chosen.limits for step in steps], show))
        for bound in BOUNDS:
            gaps = [gap for one, gap in found if one == bound]
            if gaps:
                show((f"gap to the bound {bound}: {median(gaps):.2%} in the median, {max(gaps):.2%} at worst",))


if __name__ == "__main__":
    main()
