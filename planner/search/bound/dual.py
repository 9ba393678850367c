"""A lower bound of a sum of pairwise tables: sequential tree-reweighted message passing (TRW-S).

Where exact elimination would need tables that are too large, this says how good a plan can be at best. Every pairwise
table gives parts of itself to its two variables; whatever it gives, the sum of all minima is a lower bound of the
minimum of the sum. The passes, forward and backward over the variables, choose the parts so that the bound never falls
(Kolmogorov, "Convergent tree-reweighted message passing for energy minimization", 2006). They also propose assignments,
and say of every value of a variable what an assignment with it costs at least.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
_least = np.minimum.reduce
"""The minimum of an array, without the tenth of a pass that a call of ``min`` takes: most tables are small."""


@dataclass(slots=True)
class Pair:
    """A table between two variables, and what it has given to each."""

    first: int
    second: int
    """Later than ``first`` in the order of the passes."""
    table: Floats
    """Shape [values of first, values of second]."""
    to_first: Floats
    to_second: Floats

    def rest(self) -> Floats:
        """The rest of the table."""
        reduced: Floats = self.table - self.to_first[:, None] - self.to_second
        return reduced

    def rest_for_second(self) -> Floats:
        """The least of what is left of the table, by value of the second variable."""
        least: Floats = (self.table - self.to_first[:, None]).min(axis=0) - self.to_second
        return least

    def rest_for_first(self) -> Floats:
        """The least of what is left of the table, by value of the first variable."""
        least: Floats = (self.table - self.to_second[None, :]).min(axis=1) - self.to_first
        return least


class Dual:
    """The bound of one sum of tables; variables are passed in the order of their numbers.

    Attributes:
        lower: the best bound so far.
    """

    def __init__(self, costs: Sequence[Floats], pairs: Sequence[tuple[int, int, Floats]]) -> None:
        """Begins with nothing given.

        Args:
            costs: each variable's own, by value.
            pairs: tables between two variables, the earlier one first; at most one for any two.
        """
        self.own = list(costs)
        self.pairs = [
            Pair(first, second, table, np.zeros(table.shape[0]), np.zeros(table.shape[1]))
            for first, second, table in pairs
        ]
        self.lower = -np.inf
        self._order()

    def _order(self) -> None:
        """Takes note of which variables have pairs: the others cost their least and need no pass."""
        before: dict[int, list[Pair]] = {}
        after: dict[int, list[Pair]] = {}
        for pair in self.pairs:
            after.setdefault(pair.first, []).append(pair)
            before.setdefault(pair.second, []).append(pair)
        self._joined = [
            (variable, before.get(variable, []), after.get(variable, []))
            for variable in sorted(before.keys() | after.keys())
        ]
        joined = before.keys() | after.keys()
        self._alone = float(sum(costs.min() for variable, costs in enumerate(self.own) if variable not in joined))

    def forward(self) -> list[int]:
        """One pass in the order of the variables.

        Returns:
            An assignment: each variable's best value, given those before it and what those after it seem to cost.
        """
        values = [int(costs.argmin()) for costs in self.own]
        lower = self._alone
        for variable, before, after in self._joined:
            total = self.own[variable].copy()
            for pair in after:
                total += pair.to_first
            choice = total.copy()
            for pair in before:
                choice += pair.table[values[pair.first]]
                total += pair.to_second
            values[variable] = int(choice.argmin())
            share = 1 / max(len(before), len(after))
            lower += float(_least(total)) * (1 - share * len(after))
            total *= share
            for pair in after:
                pair.to_first -= total
                pair.to_second = _least(pair.table - pair.to_first[:, None], axis=0)
        self.lower = max(self.lower, lower)
        return values

    def backward(self) -> None:
        """One pass in the opposite order."""
        lower = self._alone
        for variable, before, after in reversed(self._joined):
            total = self.own[variable].copy()
            for pair in after:
                total += pair.to_first
            for pair in before:
                total += pair.to_second
            share = 1 / max(len(before), len(after))
            lower += float(_least(total)) * (1 - share * len(before))
            total *= share
            for pair in before:
                pair.to_second -= total
                pair.to_first = _least(pair.table - pair.to_second, axis=1)
        self.lower = max(self.lower, lower)

    def with_given(self) -> list[Floats]:
        """Each variable's own cost by value, with what its pairs have given to it."""
        totals = [costs.copy() for costs in self.own]
        for pair in self.pairs:
            totals[pair.first] += pair.to_first
            totals[pair.second] += pair.to_second
        return totals

    def bound(self) -> float:
        """The least cost of every assignment, by the present gifts; after a pass backward ``lower`` is as high."""
        return sum(
            float(costs.min()) for costs in (*self.with_given(), *[pair.rest_for_first() for pair in self.pairs])
        )

    def at_least(self) -> list[Floats]:
        """A lower bound for every variable and value: no assignment with that value costs less."""
        totals = self.with_given()
        rests = [(pair, pair.rest_for_first(), pair.rest_for_second()) for pair in self.pairs]
        bound = sum(float(costs.min()) for costs in totals) + sum(float(reduced.min()) for _, reduced, _ in rests)
        for costs in totals:
            costs += bound - costs.min()
        for pair, for_first, for_second in rests:
            totals[pair.first] += for_first - for_first.min()
            totals[pair.second] += for_second - for_second.min()
        return totals

    def keep(self, values: Sequence[NDArray[np.int64]]) -> None:
        """Goes on with these values of each variable only; a pair of a variable with one value is a pair no more."""
        self.own = [costs[places] for costs, places in zip(self.own, values, strict=True)]
        pairs = []
        for pair in self.pairs:
            first, second = values[pair.first], values[pair.second]
            if (len(first), len(second)) != pair.table.shape:
                pair.table = pair.table[np.ix_(first, second)]
                pair.to_first, pair.to_second = pair.to_first[first], pair.to_second[second]
            if len(first) == 1:
                self.own[pair.second] += pair.table[0]
            elif len(second) == 1:
                self.own[pair.first] += pair.table[:, 0]
            else:
                pairs.append(pair)
        self.pairs = pairs
        self._order()

    def among(self, values: Sequence[NDArray[np.int64]]) -> Dual:
        """The sum of these values of each variable only, what is given as it is; this one stays what it is."""
        dual = Dual([costs[places] for costs, places in zip(self.own, values, strict=True)], [])
        for pair in self.pairs:
            first, second = values[pair.first], values[pair.second]
            table = pair.table[np.ix_(first, second)]
            dual.pairs.append(Pair(pair.first, pair.second, table, pair.to_first[first], pair.to_second[second]))
        dual._order()
        return dual

    def where(self, variable: int, values: NDArray[np.int64]) -> Dual:
        """The sum of these values of one variable only, what is given as it is; this one stays what it is."""
        dual = Dual(self.own, [])
        dual.pairs = [
            replace(pair, to_first=pair.to_first.copy(), to_second=pair.to_second.copy()) for pair in self.pairs
        ]
        dual.keep([values if number == variable else np.arange(len(costs)) for number, costs in enumerate(self.own)])
        return dual

    def pairs_within(self, members: Collection[int]) -> list[Pair]:
        """The pairs both of whose variables are among these."""
        inside = set(members)
        return [pair for pair in self.pairs if pair.first in inside and pair.second in inside]

    def within(self, members: Collection[int]) -> Dual:
        """The sum of some variables, with what the pairs around have given to them; this one stays what it is.

        By how much it costs more than its bound at least, this one does, too.

        Args:
            members: their numbers; theirs are these places in the part, in ascending order.
        """
        costs = self.with_given()
        number = {variable: place for place, variable in enumerate(sorted(members))}
        inside = self.pairs_within(members)
        for pair in inside:
            costs[pair.first] = costs[pair.first] - pair.to_first
            costs[pair.second] = costs[pair.second] - pair.to_second
        part = Dual([costs[variable] for variable in number], [])
        part.pairs = [
            Pair(number[pair.first], number[pair.second], pair.table, pair.to_first.copy(), pair.to_second.copy())
            for pair in inside
        ]
        part._order()
        return part

    def cost(self, values: Sequence[int]) -> float:
        """The cost of an assignment."""
        unary = sum(float(costs[value]) for costs, value in zip(self.own, values, strict=True))
        return unary + sum(float(pair.table[values[pair.first], values[pair.second]]) for pair in self.pairs)
