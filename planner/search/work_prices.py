"""Plans kept to the budget of repeated work by a price on it.

What is worth most is repeated and the rest divided if repetition has a price in bytes: the plan near the given one that
moves the fewest bytes, the price included. The least price is sought at which the budget is kept to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from planner.algebra.partial import IMPOSSIBLE
from planner.cost.tables import Candidates, CostTables, Table
from planner.graph.model import DType, Tensor
from planner.search.improve import improve
from planner.search.problem import Problem, Restriction
from planner.search.recurse import Found
from planner.tdl.bind import BoundOp

_EXPONENTS = (-10, 6)
"""The price is a power of two above the first: bytes for a unit of work, which is a FLOP or an element touched."""


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
        return np.array([round(self._price * amount) for amount in again], dtype=np.int64)


def priced_within_budget(
    problem: Problem,
    cuts: tuple[int, ...],
    restrict: Restriction,
    found: Found,
    progress: Callable[[str], None] = lambda line: None,
) -> Found | None:
    """The best plan near a given one that repeats no more work than allowed; None if no price leads to one.

    Args:
        problem: the graph's variables and tables.
        cuts: the ways of each cut, outermost first.
        restrict: narrows the candidates of a variable.
        found: a plan that repeats too much.
        progress: told what is being done.
    """

    def at(price: float) -> Found | None:
        """The plan at a price, if it is within the budget."""
        progress(f"pricing repeated work: {price:g} bytes")
        priced = replace(problem, tables=_PricedTables(problem, price), variables=[], links=[], eliminated_entries=0)
        charged = sum(amount for _, amount in priced.bytes_by_tensor(found.composites))
        plan = improve(priced, cuts, restrict, replace(found, moved_bytes=charged), progress)
        problem.eliminated_entries += priced.eliminated_entries
        if problem.overdraws(plan.composites):
            return None
        return replace(plan, moved_bytes=sum(amount for _, amount in problem.bytes_by_tensor(plan.composites)))

    low, high = _EXPONENTS
    best = at(2.0**high)
    while best is not None and high - low > 1:
        middle = (low + high) // 2
        plan = at(2.0**middle)
        if plan is None:
            low = middle
        else:
            high, best = middle, min(best, plan, key=lambda one: one.moved_bytes)
    return best
