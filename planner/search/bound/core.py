"""The core of the joint problem: its variables of few neighbours eliminated, every tiling of the others.

Eliminating a variable of up to two neighbours is exact, and leaves tables between pairs. What is left is bounded from
below elsewhere; here values are taken out with which no plan can be better than the best one known, and what is left
is solved exactly as soon as its tables are small enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from planner.algebra.tiling import Tiling
from planner.search.bound.coarse import Groups
from planner.search.bound.dual import Dual, Floats
from planner.search.effort import ROUNDING
from planner.search.exact.buckets import KnownTables
from planner.search.exact.choices import Choices
from planner.search.exact.eliminate import Reduced, eliminate
from planner.search.exact.order import Order, find_order
from planner.search.exact.rows import Ints
from planner.search.exact.sums import Table
from planner.search.model.found import Found
from planner.search.model.problem import Problem
from planner.stop import go_on


def rounding_error(value: float) -> float:
    """The rounding error of a sum of about this size."""
    relative, absolute = ROUNDING
    return relative * abs(value) + absolute


def core_entries(order: Order, sizes: Sequence[int]) -> int:
    """Entries that one pass over the core reads, known before any table is made."""
    pairs = {tuple(sorted(scope)) for _, scope in order.open if len(scope) == 2}
    return sum(sizes[first] * sizes[second] for first, second in pairs)


class Core:
    """The core of the joint problem.

    Attributes:
        constant: what every assignment costs beside the tables that are left.
        eliminated_entries: entries of all buckets that were computed.
    """

    def __init__(self, problem: Problem, choices: Choices, order: Order, check: Callable[[], None] = go_on) -> None:
        """Eliminates.

        Args:
            problem: the graph's variables and tables.
            choices: every tiling of each variable.
            order: of the variables of few neighbours.
            check: called between parts of the work; what it raises ends it.
        """
        self._choices = choices
        sizes = choices.sizes.tolist()
        known_tables = KnownTables()
        tables, table_of = problem.joint_tables(choices, check)
        self._reduced = Reduced(order, known_tables, *known_tables.interned(tables, table_of), check)
        self.constant = self._reduced.constant
        self.eliminated_entries = self._reduced.entries
        self._core = sorted(order.core, key=problem.times.__getitem__)
        number = {variable: position for position, variable in enumerate(self._core)}
        self._value_lists: list[NDArray[np.int64]] = [np.arange(sizes[variable]) for variable in self._core]
        self._unary: list[Table] = [np.zeros(sizes[variable], dtype=np.int64) for variable in self._core]
        self._pairs: dict[tuple[int, int], Table] = {}
        shared: dict[tuple[tuple[int, bool], ...], Table] = {}
        between: dict[tuple[int, int], list[tuple[int, bool]]] = {}
        for factor, scope in order.open:
            places = tuple(number[variable] for variable in scope)
            if len(places) == 1:
                self._unary[places[0]] = self._unary[places[0]] + self._reduced.table(factor)
            else:
                turned = places[0] > places[1]
                between.setdefault((min(places), max(places)), []).append((factor, turned))
        for pair, factors in between.items():
            key = tuple(sorted((id(self._reduced.table(factor)), turned) for factor, turned in factors))
            # Equal sums, of repeated layers, stay one table: then ``dual`` makes one array of them all.
            if key not in shared:
                parts = [self._reduced.table(factor) for factor, _ in factors]
                turned_parts = [part.T if turned else part for part, (_, turned) in zip(parts, factors, strict=True)]
                shared[key] = np.ascontiguousarray(sum(turned_parts[1:], turned_parts[0]))
            self._pairs[pair] = shared[key]

    def dual(self) -> Dual:
        """The bound of the core, not yet passed over."""
        floats: dict[int, Floats] = {}
        pairs = [
            (first, second, floats.setdefault(id(table), table.astype(np.float64)))
            for (first, second), table in self._pairs.items()
        ]
        return Dual([costs.astype(np.float64) for costs in self._unary], pairs)

    def without_order(self) -> list[Groups]:
        """The group of each value of the core's variables: values that differ only in the order of cuts have one."""
        groups: dict[int, Groups] = {}
        for variable in self._core:
            candidates = self._choices[variable]
            if id(candidates) not in groups:
                numbers: dict[object, int] = {}
                counters = (Counter(zip(tiling.plain.placements, tiling.ways, strict=True)) for tiling in candidates)
                group = [numbers.setdefault(frozenset(counts.items()), len(numbers)) for counts in counters]
                groups[id(candidates)] = np.array(group, dtype=np.int64)
        return [groups[id(self._choices[variable])] for variable in self._core]

    def original(self, values: Sequence[int]) -> Ints:
        """The values of all variables, when those of the core have these (positions among the kept)."""
        all_values = np.zeros(len(self._choices), dtype=np.int64)
        for variable, value_list, value in zip(self._core, self._value_lists, values, strict=True):
            all_values[variable] = value_list[value]
        self._reduced.complete(all_values)
        return all_values

    def tilings(self, values: Ints) -> tuple[Tiling, ...]:
        """The candidates that values stand for."""
        return self._choices.chosen(values)

    def values(self, best: Found) -> list[int]:
        """The values of the core's variables in the best plan known (positions among the kept, where it always is)."""
        positions = []
        for variable, value_list in zip(self._core, self._value_lists, strict=True):
            value = self._choices[variable].index(best.tilings[variable])
            positions.append(int(np.searchsorted(value_list, value)))
        return positions

    def take_out(self, dual: Dual, best: Found) -> bool:
        """Takes out values with which nothing can be better than the best plan known, but for that plan's own.

        Args:
            dual: the bound, over the values that are left.
            best: the best plan known.

        Returns:
            False if no plan can be better.
        """
        costs = dual.at_least()
        limit = best.cost - self.constant - 1 + rounding_error(dual.lower)
        if any(float(bounds.min()) > limit for bounds in costs):
            return False
        keep = []
        for bounds, value in zip(costs, self.values(best), strict=True):
            is_kept = bounds <= limit
            is_kept[value] = True
            keep.append(np.flatnonzero(is_kept))
        dual.keep(keep)
        self._value_lists = [value_list[places] for value_list, places in zip(self._value_lists, keep, strict=True)]
        return True

    def solve(self, most_entries: int, check: Callable[[], None] = go_on) -> tuple[int, Ints] | None:
        """The exact minimum over the values that are left, and where it is.

        Args:
            most_entries: of a bucket; None is returned where one would be larger.
            check: called between parts of the work; what it raises ends it.
        """
        value_lists = self._value_lists
        sizes = [len(values) for values in value_lists]
        pairs = list(self._pairs)
        scopes = [(place,) for place in range(len(sizes))] + pairs
        free = [tuple(place for place in scope if sizes[place] > 1) for scope in scopes]
        order = find_order(sizes, free, sizes, most_entries=most_entries)
        if order.core:
            return None
        tables = [costs[values] for costs, values in zip(self._unary, value_lists, strict=True)]
        tables += [self._pairs[pair][np.ix_(value_lists[pair[0]], value_lists[pair[1]])] for pair in pairs]
        squeezed = [table.reshape([sizes[place] for place in scope]) for table, scope in zip(tables, free, strict=True)]
        solution = eliminate(order, squeezed, np.arange(len(squeezed), dtype=np.int64), check)
        return self.constant + solution.total, self.original(solution.values.tolist())
