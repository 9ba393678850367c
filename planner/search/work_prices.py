"""A price on repeated work: with it, what is worth most is repeated and the rest is divided.

At any price, no plan within the budget moves less than the least of bytes and price together, less the price of the
whole budget: Lagrange's relaxation, so that a bound need not take the budget as spent nor as unlimited. Which price is
asked is settled elsewhere (``planner.search.pricing``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor

import numpy as np

from planner.algebra.partial import IMPOSSIBLE
from planner.cost.tables import Candidates, CostTables, Request, Table
from planner.graph.model import DType
from planner.search.problem import Problem
from planner.search.repetition import repeated_by
from planner.tdl.bind import BoundOp


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

    def bytes_of(self, requests: Sequence[Request]) -> list[Table]:
        """Bytes, each of shape [tilings, strategies]; with an op's first output the price as well."""
        plain = self._problem.tables.bytes_of(requests)
        return [self._priced(request, table) for request, table in zip(requests, plain, strict=True)]

    def _priced(self, request: Request, plain: Table) -> Table:
        bound, is_input, position, tensor, tilings, strategies = request
        if is_input or position != bound.first_output:
            return plain
        return self._once(
            self.kind(bound, False, position, tensor.dtype),
            (tilings, strategies),
            lambda: np.asarray(plain + self._prices(bound, strategies)[None], dtype=np.int64),
        )

    def _prices(self, bound: BoundOp, strategies: Candidates) -> Table:
        again = [repeated_by(self._problem, bound.op.name, strategy) for strategy in strategies]
        # Rounded down: what all repetitions of a plan cost is no more than the price of their work.
        return np.array([floor(self._price * amount) for amount in again], dtype=np.int64)
