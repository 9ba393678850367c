"""Plans kept to the budget of repeated work by the price that plans known call for.

Of the plans known, some move less and repeat more than allowed, some repeat less. At the price at which the best of
either kind cost the same, a bound is as high as these plans let it be. What is the best near them at that price is
another plan, and may call for another price, until nothing near them is better (the line through two plans; Handler and
Zang, A Dual Algorithm for the Constrained Shortest Path Problem, Networks 10, 1980; with all plans known it is Kelley's
method of cutting planes for Lagrange's dual).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from planner.search.budget import within_budget
from planner.search.crossing import crossed
from planner.search.improve import improve
from planner.search.mixing import mixed
from planner.search.problem import Problem, Restriction
from planner.search.recurse import Found
from planner.search.repetition import overdraws, repeated_by_choice
from planner.search.work_prices import FREE, Price

_STEEPER = 64.0
"""A price at which too much is repeated is tried so many times as high."""
_DEAREST = 4
"""How often, until nothing is repeated."""
_LINES = 8
"""Prices that are tried between plans that overdraw and plans that do not."""
_MIXED = 3
"""Of the plans that overdraw, and of those that do not, so many are mixed with one another."""


class Pricing:
    """The plans known that count, and the price of repeated work that they call for."""

    def __init__(
        self,
        problem: Problem,
        cuts: tuple[int, ...],
        restrict: Restriction,
        progress: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Knows no plan yet.

        Args:
            problem: the graph's variables and tables.
            cuts: the ways of each cut, outermost first.
            restrict: narrows the candidates of a variable.
            progress: told what is being done.
        """
        self._problem = problem
        self._cuts = cuts
        self._restrict = restrict
        self._progress = progress
        self._plans: list[tuple[Found, int]] = []
        """With the work that each repeats by choice."""

    def note(self, found: Found) -> None:
        """Takes note of a plan, by its bytes without a price."""
        if all(found.composites != known.composites for known, _ in self._plans):
            self._plans.append((found, sum(repeated_by_choice(self._problem, found.composites))))

    @property
    def price(self) -> Price:
        """The price with which these plans let a bound be the highest; none where none is called for."""
        over, under = map(_best_of, self._kinds(FREE))
        lines = [
            Price((less.moved_bytes - more.moved_bytes) / (work - little))
            for more, work in over
            for less, little in under
            if more.moved_bytes < less.moved_bytes
        ]
        return max((FREE, *lines), key=self._bound) if lines else FREE

    def would_raise(self, price: Price) -> float:
        """By how many bytes these plans let a bound be higher with the price that they call for than with this one."""
        return self._bound(self.price) - self._bound(price)

    def best(self) -> Found | None:
        """The best plan known within the budget."""
        under = self._kinds(FREE)[1]
        return under[0][0] if under else None

    def search(self) -> None:
        """Looks for better plans near those known, at the prices that they call for, and takes note of them."""
        self._find_one_within()
        tried: set[Price] = set()
        for _ in range(_LINES):
            price = self.price
            over, under = self._kinds(price)
            if not under or price in tried:
                break
            tried.add(price)
            found, gained = self._at(price, *(plan for plan, _ in (*over[:1], *under[:1])))
            self.note(found)
            if gained <= 0:
                break
        self._mix()

    def _find_one_within(self) -> None:
        """Asks ever higher prices until a plan within the budget is known."""
        over, under = self._kinds(FREE)
        if under or not over:
            return
        found, work = over[0]
        for number in range(_DEAREST):
            dear, _ = self._at(Price(found.moved_bytes / work * _STEEPER**number), found)
            if not overdraws(self._problem, dear.composites):
                self.note(dear)
                break

    def _mix(self) -> None:
        """Plans that repeat more in some layers and less in others, as the budget allows."""
        price = self.price
        over, under = self._kinds(price)
        if not over or not under:
            return
        self._progress("mixing plans that repeat more and less")
        pairs = itertools.product(over[:_MIXED], under[:_MIXED])
        best = min((mixed(self._problem, more, less) for (more, _), (less, _) in pairs), key=_moved)
        self.note(best)
        self.note(within_budget(self._problem, self._cuts, self._restrict, over[0][0], self._progress))
        self.note(self._at(price, best)[0])

    def _bound(self, price: Price) -> float:
        """What these plans let a bound be with this price."""
        return min(self._costs(price, plan, work) for plan, work in self._plans) - price.of_budget(self._problem)

    def _costs(self, price: Price, plan: Found, work: int) -> float:
        return plan.moved_bytes + price.bytes_per_work * work

    def _kinds(self, price: Price) -> tuple[list[tuple[Found, int]], list[tuple[Found, int]]]:
        """The plans that overdraw and those that do not, with what each repeats; what costs the least comes first."""
        ranked = sorted(self._plans, key=lambda known: self._costs(price, *known))
        allowed = self._problem.allowed_work
        return [known for known in ranked if known[1] > allowed], [known for known in ranked if known[1] <= allowed]

    def _at(self, price: Price, *plans: Found) -> tuple[Found, int]:
        """The best plan near these at a price, in bytes alone; and how much less it costs than any of them."""
        self._progress(f"pricing repeated work: {price.bytes_per_work:g} bytes")
        priced = price.priced(self._problem)
        charged = [replace(plan, moved_bytes=priced.total_bytes(plan.composites)) for plan in plans]
        least = min(map(_moved, charged))
        best = improve(priced, self._cuts, self._restrict, crossed(priced, charged), self._progress)
        if priced is not self._problem:
            self._problem.eliminated_entries += priced.eliminated_entries
        moved = self._problem.total_bytes(best.composites)
        return replace(best, moved_bytes=moved), least - best.moved_bytes


def _best_of(plans: Sequence[tuple[Found, int]]) -> list[tuple[Found, int]]:
    """Those of plans, with the work that each repeats, that are the best at some price: fewer bytes, or less work.

    Args:
        plans: those of the fewest bytes first.
    """
    found: list[tuple[Found, int]] = []
    for plan, work in plans:
        if not found or work < found[-1][1]:
            found.append((plan, work))
    return found


def _moved(plan: Found) -> int:
    return plan.moved_bytes
