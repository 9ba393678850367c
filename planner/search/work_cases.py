"""The best of all plans within the budget of repeated work, by cases of how much an op repeats.

A price on repeated work (``planner.search.work_prices``) bounds what plans within the budget move, but seldom to the
byte: as with any knapsack, the plans that are best at a price repeat too much, or less than they might. Where the whole
sum of tables is small enough to be solved exactly, the rest is closed by cases: of a plan that overdraws and one that
does not, an op repeats more in one than in the other; either it repeats no more than the less, or it does. Each case
has a best price of its own, and its bound rises. (Branch and bound on Lagrange's relaxation; Fisher, The Lagrangian
Relaxation Method for Solving Integer Programming Problems, Management Science 27, 1981.)
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace

from planner.algebra.tiling import Tiling
from planner.search.buckets import KnownTables
from planner.search.choices import Choices
from planner.search.effort import Effort
from planner.search.eliminate import eliminate_known
from planner.search.order import find_order
from planner.search.problem import Problem
from planner.search.recurse import Found
from planner.search.repetition import repeated_by, repeated_by_choice
from planner.search.work_prices import FREE, Price

_FACTOR = 5000
"""Entries that are computed in the time that a solution takes beside them, for each factor."""
_MOST_HELD = 1 << 26
"""Entries of tables that are kept from one solution to the next; with more, all are made anew."""
_PRICES = 6
"""That are tried in a case."""
_STEEPER = 4.0
"""A price at which too much is repeated is tried so many times as high."""


@dataclass(frozen=True, slots=True)
class _Solved:
    """What costs the least at a price."""

    composites: tuple[Tiling, ...]
    moved: int
    """Bytes."""
    repeated: int
    """Work."""


@dataclass(frozen=True, slots=True)
class _Case:
    """Plans whose ops repeat some amounts and not others."""

    choices: Choices
    bound: int
    """Bytes: none within the budget moves less."""
    price: Price
    """At which the bound is the highest."""
    over: _Solved | None
    """A plan that overdraws, the best at some price."""
    under: _Solved | None
    """A plan that does not."""


def least_within_budget(
    problem: Problem,
    choices: Choices,
    found: Found,
    price: Price,
    effort: Effort,
    progress: Callable[[str], None] = lambda line: None,
) -> Found:
    """The best plan of some choices that repeats no more work than allowed.

    Args:
        problem: the graph's variables and tables.
        choices: each variable's candidates; every plan that is better than the given one is among them.
        found: a plan within the budget, with a bound.
        price: of repeated work, near the best.
        effort: how much work may be done.
        progress: told what is being done.

    Returns:
        The best plan now known, and its bound: the plan itself moves no more, unless solutions are too large, they are
        more work than the effort, or a plan needs a strategy that no local op computes.
    """
    search = _Search(problem, choices, found)
    if search.largest_bucket(choices) > effort.exact_entries:
        return found
    waiting = [(0, 0, search.bounded(choices, price, 0))]
    count = 1
    while waiting and search.entries < effort.budget_entries:
        _, _, case = waiting[0]
        if case.bound >= search.best.moved_bytes:
            break
        progress(f"cases of repeated work: {search.best.moved_bytes:,} bytes, at least {case.bound:,}")
        parts = search.divided(case)
        if parts is None:
            break
        heapq.heappop(waiting)
        for part in parts:
            inside = search.bounded(part, case.price, case.bound)
            if inside.bound < search.best.moved_bytes:
                heapq.heappush(waiting, (inside.bound, count, inside))
            count += 1
    best = search.best.moved_bytes
    lower = min((case.bound for _, _, case in waiting), default=best)
    return replace(search.best, lower_bytes=max(found.lower_bytes or 0, min(lower, best)))


class _Search:
    """Exact solutions at prices, and the best plan that they came upon."""

    def __init__(self, problem: Problem, choices: Choices, found: Found) -> None:
        self._problem = problem
        self._order = find_order(choices.sizes.tolist(), problem.scopes, problem.content)
        self._priced: dict[Price, tuple[Problem, KnownTables]] = {}
        self.best = found
        self.entries = 0.0
        """Entries that were computed, and what solutions took beside them."""

    def largest_bucket(self, choices: Choices) -> float:
        """Entries of the largest bucket of a solution."""
        return self._order.largest_bucket(choices.sizes)

    def bounded(self, choices: Choices, price: Price, lower: int) -> _Case:
        """The case of these choices: prices on the line through a plan that overdraws and one that does not.

        Args:
            choices: each variable's candidates.
            price: the first to try.
            lower: no plan of the choices moves less.
        """
        over: _Solved | None = None
        under: _Solved | None = None
        bound, best, tried = lower, price, set[Price]()
        while price not in tried and len(tried) < _PRICES:
            tried.add(price)
            solved, costs = self._solve(choices, price)
            # Nothing to spare where the price is nothing: what is within the budget then is the best there is.
            if costs - price.of_budget(self._problem) > bound:
                bound, best = costs - price.of_budget(self._problem), price
            if solved.repeated > self._problem.allowed_work:
                over = solved
            else:
                under = solved
            if bound >= self.best.moved_bytes:
                break
            price = _next(price, over, under)
        return _Case(choices, bound, best, over, under)

    def _solve(self, choices: Choices, price: Price) -> tuple[_Solved, int]:
        """What costs the least at a price, and what it costs."""
        problem = self._problem
        if sum(known.held for _, known in self._priced.values()) > _MOST_HELD:
            self._priced = {}
        if price not in self._priced:
            self._priced[price] = price.priced(problem), KnownTables()
        priced, known = self._priced[price]
        solution = eliminate_known(self._order, known, *known.interned(*priced.joint_tables(choices)))
        problem.eliminated_entries += solution.entries
        self.entries += solution.entries + _FACTOR * len(problem.scopes)
        composites = choices.chosen(solution.values)
        moved, repeated = problem.total_bytes(composites), sum(repeated_by_choice(problem, composites))
        is_better = moved < self.best.moved_bytes and repeated <= problem.allowed_work
        if is_better and problem.are_local(composites):
            self.best = replace(self.best, composites=composites, moved_bytes=moved)
        return _Solved(composites, moved, repeated), solution.total

    def divided(self, case: _Case) -> tuple[Choices, ...] | None:
        """Parts of a case, by an op that repeats more in one of its plans than in the other.

        Returns:
            () if none of its plans is within the budget; None if nothing is known to divide by.
        """
        if case.over is None:
            return None
        over = case.over.composites
        under = self._least(case.choices) if case.under is None else case.under.composites
        amounts = [repeated_by_choice(self._problem, plan) for plan in (over, under)]
        if sum(amounts[1]) > self._problem.allowed_work:
            return ()
        apart = [abs(first - second) for first, second in zip(*amounts, strict=True)]
        variable = apart.index(max(apart))
        if not apart[variable]:
            return None
        less = min(self._repeats(variable, plan[variable]) for plan in (over, under))
        candidates = case.choices[variable]
        parts = (
            [candidate for candidate in candidates if self._repeats(variable, candidate) <= less],
            [candidate for candidate in candidates if self._repeats(variable, candidate) > less],
        )
        return tuple(case.choices.replaced(variable, self._problem.intern(tuple(part))) for part in parts)

    def _least(self, choices: Choices) -> tuple[Tiling, ...]:
        """What repeats the least, variable by variable."""
        return tuple(
            min(choices[variable], key=lambda candidate: self._repeats(variable, candidate))
            for variable in range(len(choices))
        )

    def _repeats(self, variable: int, composite: Tiling) -> int:
        op = self._problem.variables[variable].op
        return 0 if op is None else repeated_by(self._problem, op.op.name, composite)


def _next(price: Price, over: _Solved | None, under: _Solved | None) -> Price:
    """The price to try next: where two plans cost the same; higher, or nothing, where only one kind is known."""
    if over is None:
        return FREE
    if under is None:
        steeper = price.bytes_per_work * _STEEPER
        return Price(steeper or over.moved / over.repeated)
    return Price(max(0.0, (under.moved - over.moved) / (over.repeated - under.repeated)))
