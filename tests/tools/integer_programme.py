"""The least of all plans of a small graph, by an independent solver (HiGHS) of the same tables."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from planner.algebra.tiling import Tiling
from planner.cost.residence import Residence
from planner.cost.tables import Candidates, Request
from planner.search.exact.choices import Choices
from planner.search.model.problem import Problem, Restriction, SearchVariable, no_restriction

_INFEASIBLE = 2
"""Status of a programme that nothing meets (``scipy.optimize.milp``)."""
_TOLERANCE = 1e-6
"""Of the solver."""


def composites(
    problem: Problem, variable: SearchVariable, cuts: tuple[int, ...], restrict: Restriction = no_restriction
) -> Candidates:
    """Every tiling of a variable, those among them whose cuts nest in other orders."""
    found = [Tiling((), ())]
    for ways in cuts:
        longer = [restrict(variable, problem.extensions(variable, prefix, ways)) for prefix in found]
        found = [one for options in longer for one in options]
    nested = problem.spaces[variable.number].nests(cuts, most=10_000)
    found += [one for one in nested if restrict is no_restriction or problem.lets_through(restrict, variable, one)]
    return tuple(found)


def least_of_all(problem: Problem, cuts: tuple[int, ...], restrict: Restriction = no_restriction) -> int:
    """The joint optimum by integer programming: one binary for each value, and one for each pair of a table.

    Args:
        problem: the graph's variables and tables.
        cuts: the ways of each cut, outermost first.
        restrict: narrows the candidates of a variable.
    """
    found = Programme(problem, cuts, restrict).least()
    assert found is not None, "without a limit there is a plan"
    return found[0]


class Programme:
    """The plans of a graph as an integer programme, of which some may be ruled out."""

    def __init__(
        self, problem: Problem, cuts: tuple[int, ...], restrict: Restriction = no_restriction, first: int = 0
    ) -> None:
        """States it.

        Args:
            problem: the graph's variables and tables.
            cuts: the ways of each cut, outermost first.
            restrict: narrows the candidates of a variable.
            first: what every plan costs beside what the tables say.
        """
        self._problem = problem
        self._choices = [
            problem.intern(composites(problem, variable, cuts, restrict)) for variable in problem.variables
        ]
        self._start = np.concatenate([[0], np.cumsum([len(values) for values in self._choices])])
        self._rows: list[np.ndarray] = []
        self._columns: list[np.ndarray] = []
        self._factors: list[np.ndarray] = []
        self._low: list[float] = []
        self._high: list[float] = []
        self._cells: dict[tuple[int, int], np.ndarray] = {}
        """By tensor's and op's variable the binaries of the pairs of values, [values of one, values of the other]."""
        self._used, self._peak = int(self._start[-1]), 0
        for variable in range(len(self._choices)):
            self._constrain(self._values(variable), 1, 1, 1)
        self._constant = first
        self._add_tables()

    def _values(self, variable: int) -> np.ndarray:
        return np.arange(self._start[variable], self._start[variable + 1])

    def _constrain(self, columns: np.ndarray, factors: np.ndarray | float, low: float, high: float) -> None:
        self._rows.append(np.full(len(columns), len(self._low)))
        self._columns.append(columns)
        self._factors.append(np.broadcast_to(factors, columns.shape))
        self._low.append(low)
        self._high.append(high)

    def _add_tables(self) -> None:
        tables, which = self._problem.joint_tables(Choices.of(self._choices))
        costs = self._costs = [np.zeros(self._used)]
        for number, scope in zip(which.tolist(), self._problem.scopes, strict=True):
            table = tables[number]
            if not scope:
                self._constant += int(table)
            elif len(scope) == 1:
                costs[0][self._values(scope[0])] += table
            else:
                self._add_pair(scope, table)

    def _add_pair(self, pair: tuple[int, ...], table: np.ndarray) -> np.ndarray:
        """The binaries of the pairs of two variables' values, which are new, and what they cost."""
        one, other = (self._values(variable) for variable in pair)
        cells = self._cells[pair] = self._used + np.arange(table.size).reshape(table.shape)
        self._used += cells.size
        self._costs.append(table.ravel().astype(float))
        for value, column in [*zip(cells, one, strict=True), *zip(cells.T, other, strict=True)]:
            self._constrain(np.append(value, column), np.append(np.ones(len(value)), -1), 0, 0)
        return cells

    def _columns_of(self, one: int, other: int) -> np.ndarray:
        """The binaries that say which pair of values two variables have, [values of one, values of the other]."""
        counts = len(self._choices[one]), len(self._choices[other])
        if counts[0] == 1:
            return self._values(other)[None]
        if counts[1] == 1:
            return self._values(one)[:, None]
        if (other, one) in self._cells:
            return self._cells[other, one].T
        return (
            self._cells[one, other] if (one, other) in self._cells else self._add_pair((one, other), np.zeros(counts))
        )

    def add_residence(self, residence: Residence) -> None:
        """States what lies on all workers together at each moment, so that it can be limited and minimised.

        Args:
            residence: of the graph; no op may read a tensor at two places that differ.
        """
        problem, choices = self._problem, self._choices
        graph, bound = problem.graph, {one.op.name: one for one in problem.ops}
        read = {(link.op_name, link.name) for link in problem.links if link.is_input}
        assert len(read) == sum(link.is_input for link in problem.links), "one tile may serve two places of an op"
        columns: list[list[np.ndarray]] = [[] for _ in range(residence.moments)]
        amounts: list[list[np.ndarray]] = [[] for _ in range(residence.moments)]
        weights = [residence.weights({moment: Fraction(1)}) for moment in range(residence.moments)]
        for link in problem.links:
            port, tensor = (link.op_name, link.is_input, link.position), graph.tensors[link.name]
            tables = residence.tables(
                Request(bound[port[0]], *port[1:], tensor, choices[link.tensor], choices[link.op])
            )
            places = self._columns_of(link.tensor, link.op)
            for moment, counted in enumerate(weights):
                if port in counted:
                    table = sum(int(times) * table for times, table in zip(counted[port], tables, strict=True))
                    columns[moment].append(places.ravel())
                    amounts[moment].append(np.broadcast_to(table, places.shape).ravel())
        self._peak, self._used = self._used, self._used + 1
        self._costs.append(np.zeros(1))
        self._unit_bytes = float(residence.least().max())
        for places, there in zip(columns, amounts, strict=True):
            which, at = np.unique(np.concatenate(places), return_inverse=True)
            lying = np.bincount(at, np.concatenate(there)) / self._unit_bytes
            self._constrain(np.append(which, self._peak), np.append(lying, -1), -np.inf, 0)

    def rule_out(self, tilings: tuple[Tiling, ...]) -> None:
        """Rules one plan out."""
        chosen = [self._start[number] + self._choices[number].index(tiling) for number, tiling in enumerate(tilings)]
        self._constrain(np.array(chosen), 1, -np.inf, len(chosen) - 1)

    def leanest(self) -> int:
        """The least of all plans' residences, each at its fullest moment, in bytes."""
        costs = np.zeros(self._used)
        costs[self._peak] = 1
        found = self._solved(costs, np.inf, None)
        assert found is not None, "without a limit there is a plan"
        return math.ceil(found[0] * self._unit_bytes * (1 - _TOLERANCE))

    def least(self, *, below: int | None = None, room: int | None = None) -> tuple[int, tuple[Tiling, ...]] | None:
        """The least cost of the plans that are not ruled out, and one of them, by variable; None if there is none.

        Args:
            below: only plans that cost less count; None: all do.
            room: bytes that may lie on all workers together at any moment; None: as many as do.
        """
        peak = np.inf if room is None else room / self._unit_bytes
        found = self._solved(np.concatenate(self._costs), peak, None if below is None else below - 1 - self._constant)
        return found and (self._constant + round(found[0]), found[1])

    def _solved(self, costs: np.ndarray, peak: float, most: float | None) -> tuple[float, tuple[Tiling, ...]] | None:
        rows, columns, factors = (np.concatenate(one) for one in (self._rows, self._columns, self._factors))
        low, high = np.array(self._low), np.array(self._high)
        if most is not None:
            priced = np.flatnonzero(costs)
            rows, columns = np.append(rows, np.full(len(priced), len(low))), np.append(columns, priced)
            factors, low, high = np.append(factors, costs[priced]), np.append(low, -np.inf), np.append(high, most)
        integral, highest = np.zeros(self._used), np.ones(self._used)
        integral[: self._start[-1]] = 1
        if self._peak:
            highest[self._peak] = peak
        matrix = coo_array((factors, (rows, columns)), shape=(len(low), self._used)).tocsr()
        result = milp(
            costs,
            integrality=integral,
            bounds=Bounds(0, highest),
            constraints=LinearConstraint(matrix, low, high),
            options={"mip_rel_gap": 0},
        )
        if result.status == _INFEASIBLE:
            return None
        assert result.success, result.message
        chosen = [int(np.argmax(result.x[self._values(variable)])) for variable in range(len(self._choices))]
        return result.fun, tuple(values[number] for values, number in zip(self._choices, chosen, strict=True))
