"""Plans kept to the budget of repeated work by a price on it, and bounds of them.

With a price in bytes for each unit of repeated work, what is worth most is repeated and the rest is divided. The price
is sought at which a plan that overdraws the budget is as good as one that keeps to it, and nothing near them is better
(the line through two plans; Handler and Zang, A Dual Algorithm for the Constrained Shortest Path Problem, Networks 10,
1980). At any price, no plan within the budget moves less than the least of bytes and price together, less the price of
the whole budget: Lagrange's relaxation, so that a bound need not take the budget as spent nor as unlimited.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import floor

import numpy as np

from planner.algebra.partial import IMPOSSIBLE
from planner.cost.tables import Candidates, CostTables, Table
from planner.graph.model import DType, Tensor
from planner.search.budget import within_budget
from planner.search.crossing import crossed
from planner.search.improve import improve
from planner.search.mixing import mixed
from planner.search.problem import Problem, Restriction
from planner.search.recurse import Found
from planner.tdl.bind import BoundOp

_STEEPER = 64.0
"""A price at which too much is repeated is tried so many times as high."""
_DEAREST = 4
"""How often, until nothing is repeated."""
_LINES = 8
"""Prices that are tried between a plan that overdraws and one that does not."""
_MIXED = 3
"""Of the last plans that overdraw, and of those that do not, so many are mixed with one another."""


@dataclass(frozen=True, slots=True)
class Price:
    """What repeated work costs beside the bytes that move."""

    bytes_per_work: float = 0.0
    """A unit of work is a FLOP or an element touched, as in ``planner.cost.compute.work``."""

    def priced(self, problem: Problem) -> Problem:
        """The problem in which a plan costs its bytes and what it repeats by choice; variables are the same."""
        if not self.bytes_per_work:
            return problem
        tables = _PricedTables(problem, self.bytes_per_work)
        return replace(problem, tables=tables, variables=[], links=[], eliminated_entries=0)

    def of_budget(self, problem: Problem) -> int:
        """What a plan within the budget costs at most beside its bytes, rounded down."""
        return floor(self.bytes_per_work * problem.allowed_work)


FREE = Price()


class _PricedTables(CostTables):
    """Tables in which work has a price that is done again though it could be divided."""

    def __init__(self, problem: Problem, price: float) -> None:
        super().__init__()
        self.lists, self.local = problem.tables.lists, problem.tables.local
        self._problem = problem
        self._price = price

    def kind(self, bound: BoundOp, is_input: bool, position: int, dtype: DType) -> tuple[object, ...]:
        """As without prices, but for the output with which the work of an op is counted."""
        if is_input or position != bound.first_output:
            return self._problem.tables.kind(bound, is_input, position, dtype)
        return is_input, position, bound.content, dtype

    def impossible(self, most_bytes: int) -> int:
        """What stands for an impossible entry in sums of these tables, which are not of bytes alone."""
        return IMPOSSIBLE

    def input_bytes(
        self, bound: BoundOp, slot: int, tensor: Tensor, tilings: Candidates, strategies: Candidates
    ) -> Table:
        """As without prices."""
        return self._problem.tables.input_bytes(bound, slot, tensor, tilings, strategies)

    def output_bytes(
        self, bound: BoundOp, position: int, tensor: Tensor, tilings: Candidates, strategies: Candidates
    ) -> Table:
        """Bytes, shape [tilings, strategies]; with the first output the price as well."""
        plain = self._problem.tables.output_bytes(bound, position, tensor, tilings, strategies)
        if position != bound.first_output:
            return plain
        return self._once(
            self.kind(bound, False, position, tensor.dtype),
            (tilings, strategies),
            lambda: np.asarray(plain + self._prices(bound, strategies)[None], dtype=np.int64),
        )

    def _prices(self, bound: BoundOp, strategies: Candidates) -> Table:
        again = [self._problem.repeated_by(bound.op.name, strategy) for strategy in strategies]
        # Rounded down: what all repetitions of a plan cost is no more than the price of their work.
        return np.array([floor(self._price * amount) for amount in again], dtype=np.int64)


def priced_within_budget(
    problem: Problem,
    cuts: tuple[int, ...],
    restrict: Restriction,
    found: Found,
    progress: Callable[[str], None] = lambda line: None,
    known: Found | None = None,
) -> tuple[Found, Price] | None:
    """The best plan near a given one that repeats no more work than allowed; None if no price leads to one.

    Args:
        problem: the graph's variables and tables.
        cuts: the ways of each cut, outermost first.
        restrict: narrows the candidates of a variable.
        found: a plan that repeats too much.
        progress: told what is being done.
        known: a plan that does not, and moves more bytes.

    Returns:
        The plan, which may be mixed of two, and the price at which the budget is kept to.
    """

    def work(plan: Found) -> int:
        return sum(problem.repeated_by_choice(plan.composites))

    def at(price: Price, *plans: Found) -> tuple[Found, int]:
        """The best plan near these at a price, in bytes alone; and how much less it costs than any of them."""
        progress(f"pricing repeated work: {price.bytes_per_work:g} bytes")
        priced = price.priced(problem)
        charged = [replace(plan, moved_bytes=priced.total_bytes(plan.composites)) for plan in plans]
        least = min(plan.moved_bytes for plan in charged)
        best = improve(priced, cuts, restrict, crossed(priced, charged), progress)
        problem.eliminated_entries += priced.eliminated_entries
        return replace(best, moved_bytes=problem.total_bytes(best.composites)), least - best.moved_bytes

    overs, unders = [found], [] if known is None else [known]

    def note(plan: Found) -> None:
        (overs if problem.overdraws(plan.composites) else unders).append(plan)

    price = first = Price(found.moved_bytes / work(found))
    for number in range(_DEAREST if known is None else 0):
        price = Price(first.bytes_per_work * _STEEPER**number)
        plan, _ = at(price, found)
        if not problem.overdraws(plan.composites):
            unders.append(plan)
            break
    if not unders:
        return None
    for _ in range(_LINES):
        over, under = overs[-1], unders[-1]
        if under.moved_bytes <= over.moved_bytes:
            break
        price = Price((under.moved_bytes - over.moved_bytes) / (work(over) - work(under)))
        plan, gained = at(price, over, under)
        note(plan)
        if gained <= 0:
            break
    progress("mixing plans that repeat more and less")
    pairs = itertools.product(overs[-_MIXED:], unders[-_MIXED:])
    best = min((mixed(problem, over, under) for over, under in pairs), key=lambda plan: plan.moved_bytes)
    better = [within_budget(problem, cuts, restrict, overs[-1], progress), at(price, best)[0]]
    allowed = [plan for plan in better if not problem.overdraws(plan.composites)]
    return min((best, *allowed), key=lambda plan: plan.moved_bytes), price
