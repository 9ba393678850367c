"""Solves instances of ``iopddl``: variables are merged, memory has prices, the rest is message passing.

With a price for what is taken at each time, no plan within the limit costs less than the least of the priced sum, less
what the limit is worth at these prices; and ``planner.search.bound.dual`` bounds that sum. Bounds are computed anew in
integers. Plans are what the passes propose, ties broken by chance, put within the limit and improved variable by
variable; of the best plan and of what is proposed the cheapest mixture by variable is found exactly.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from time import process_time
from typing import Final, TypeVar

import numpy as np
from iopddl_instance import Instance, Ints
from iopddl_merged import Merged
from iopddl_prices import Prices

from planner.errors import InfeasibleError
from planner.search.bound.dual import Dual, Floats
from planner.search.exact.eliminate import Factor, minimise

_FIRST_CAP: Final = 10**15
"""Stands for impossible until there is a plan; sums of it are exact in floating point."""
_PASSES: Final = 2
"""Forward and back, between two changes of prices."""
_SHARE_OF_PLANS: Final = 0.5
"""Of the time of passes, for plans."""
_MOST_CHANCE: Final = 1e-2
"""Of what the best plan costs, shared by all variables, what chance adds to a value at most."""
_PASSES_BY_CHANCE: Final = 10
_TIMES_OF_PRICES: Final = (1.0, 1.02, 1.1, 1.5)
"""At which plans are mixed, until a mixture is within the limit."""
_TRIES_TO_FUSE: Final = 8
_MOST_ENTRIES: Final = 1 << 18
"""Of a table on the way to the cheapest mixture of two plans."""
_EXACT_GAIN: Final = 1e-4
"""Share by which a bound is to be better for its being computed exactly, but for late ones."""
_LATE: Final = 0.6
_LAST_ROUNDS: Final = 5
"""From this share of the time on, and in the last rounds, plans are looked for even if prices have not settled."""
_MOST_SCALE_BITS: Final = 20
"""Prices and what is given are rounded to no smaller parts than this power of two."""
_SUM_BITS: Final = 60
"""No number of the integer bound takes more, so that sums of four are in 64 bits."""


Numbers = TypeVar("Numbers", Ints, Floats)


@dataclass(frozen=True, slots=True)
class Solved:
    """What was found: a strategy for each node, if there is a plan, and what no plan costs less than."""

    chosen: list[int] | None
    lower: int


class Memory:
    """What variables take beyond their least, at the times at which the limit may be too little for their most.

    Attributes:
        limit: of the instance.
        spare: by time, what may be taken; shape [times].
        rows: by variable its rows: the first time, the first one after, and what is taken by value.
    """

    def __init__(self, merged: Merged, instance: Instance) -> None:
        """Adds up what merged nodes take.

        Args:
            merged: the variables.
            instance: the nodes.
        """
        numbers = {node: number for number, node in enumerate(merged.left())}
        sums = _taken_by_variable(merged, instance, numbers)
        starts = np.unique(np.array([lower for _, lower, _ in sums], dtype=np.int64))
        spans = [(number, *np.searchsorted(starts, (lower, upper)).tolist()) for number, lower, upper in sums]
        least, most = np.zeros(len(starts) + 1, dtype=np.int64), np.zeros(len(starts) + 1, dtype=np.int64)
        for (_, first, after), taken in zip(spans, sums.values(), strict=True):
            for total, value in ((least, int(taken.min())), (most, int(taken.max()))):
                total[first] += value
                total[after] -= value
        least, most = least.cumsum()[:-1], most.cumsum()[:-1]
        binding = np.flatnonzero(most > instance.limit)
        rows: dict[tuple[int, int, int], Ints] = {}
        for (number, first, after), taken in zip(spans, sums.values(), strict=True):
            first, after = np.searchsorted(binding, (first, after)).tolist()
            if first < after and taken.min() < taken.max():
                rows[number, first, after] = rows.get((number, first, after), 0) + taken - taken.min()
        # Of times at which the same rows are alive, the one with the least to spare counts.
        edges = np.unique(np.array([0, *(time for _, first, after in rows for time in (first, after))], dtype=np.int64))
        edges = edges[edges < len(binding)]
        spare = instance.limit - least[binding]
        self.limit = instance.limit
        self.spare: Ints = np.minimum.reduceat(spare, edges) if len(binding) else spare
        self.rows: list[list[tuple[int, int, Ints]]] = [[] for _ in numbers]
        for (number, first, after), taken in rows.items():
            begin, end = np.searchsorted(edges, (first, after)).tolist()
            self.rows[number].append((begin, end, taken))
        sizes = [len(strategies) for strategies in (merged.own[node] for node in numbers) if strategies is not None]
        self._starts = np.concatenate([[0], np.cumsum(sizes)])
        flat = [(number, begin, end, taken) for number, own in enumerate(self.rows) for begin, end, taken in own]
        self._begin = np.array([begin for _, begin, _, _ in flat], dtype=np.int64)
        self._end = np.array([end for _, _, end, _ in flat], dtype=np.int64)
        self._variable = np.array([number for number, *_ in flat], dtype=np.int64)
        lengths = np.array([len(taken) for *_, taken in flat], dtype=np.int64)
        self._row = np.repeat(np.arange(len(flat)), lengths)
        self._first = np.cumsum(lengths) - lengths
        self._taken = np.concatenate([taken for *_, taken in flat]) if flat else np.zeros(0, dtype=np.int64)
        self._cell = (
            np.arange(len(self._row)) - self._first[self._row] + self._starts[self._variable[self._row]]
            if flat
            else np.zeros(0, dtype=np.int64)
        )

    def usages(self) -> dict[int, Ints]:
        """By variable what it takes, shape [rows, values]."""
        return {number: np.stack([row[2] for row in rows]) for number, rows in enumerate(self.rows) if rows}

    def priced(self, prices: Numbers) -> Numbers:
        """What all values of all variables take, at a price for each time; flat, of the prices' type."""
        until = np.concatenate([np.zeros(1, dtype=prices.dtype), prices.cumsum()])
        found = np.zeros(int(self._starts[-1]), dtype=prices.dtype)
        np.add.at(found, self._cell, self._taken * (until[self._end] - until[self._begin])[self._row])
        return found

    def split(self, flat: Numbers) -> list[Numbers]:
        """By variable."""
        return np.split(flat, self._starts[1:-1])

    def taken(self, values: Sequence[int]) -> Ints:
        """By time what values take, shape [times]."""
        change = np.zeros(len(self.spare) + 1, dtype=np.int64)
        own = self._taken[self._first + np.array(values, dtype=np.int64)[self._variable]]
        np.add.at(change, self._begin, own)
        np.add.at(change, self._end, -own)
        return change.cumsum()[:-1]


def _taken_by_variable(merged: Merged, instance: Instance, numbers: dict[int, int]) -> dict[tuple[int, int, int], Ints]:
    """By variable, lower and upper time: what all nodes merged into it take within that interval, by value."""
    sums: dict[tuple[int, int, int], Ints] = {}
    for node, (into, strategies) in enumerate(merged.members()):
        lower, upper = instance.intervals[node].tolist()
        if lower < upper:
            key = (numbers[into], lower, upper)
            sums[key] = sums.get(key, 0) + instance.usages[node][strategies]
    return sums


def solve(instance: Instance, until: float, most_rounds: int = sys.maxsize) -> Solved:
    """Looks for a plan and a bound.

    Args:
        instance: what is to be solved.
        until: the second, of ``time.process_time``, at which the search ends.
        most_rounds: changes of prices after which it ends, too.

    Raises:
        InfeasibleError: no strategies are possible together within the limit.
    """
    merged = Merged(instance)
    memory = Memory(merged, instance)
    left = merged.left()
    merged.drop_dominated({left[number]: taken for number, taken in memory.usages().items()})
    memory = Memory(merged, instance)
    if (lacks := -int(memory.spare.min(initial=0))) > 0:
        raise InfeasibleError(f"what nodes take at least, within possible pairs, is {lacks:,} more than the limit")
    search = _Search(merged, memory, until)
    search.run(most_rounds)
    best = search.best
    return Solved(None if best is None else merged.chosen(dict(zip(merged.left(), best, strict=True))), search.lower)


class _Search:
    """The search over the variables that are left."""

    def __init__(self, merged: Merged, memory: Memory, until: float) -> None:
        left = merged.left()
        number = {node: position for position, node in enumerate(left)}
        self._memory, self._until = memory, until
        self._own = [own for own in (merged.own[node] for node in left) if own is not None]
        self._pairs = [
            (number[node], number[other], np.ascontiguousarray(table))
            for node in left
            for other, table in merged.near[node].items()
            if number[node] < number[other]
        ]
        self._search = Prices(memory.spare, max(1, memory.limit))
        self._prices = self._search.by_time()
        self._chance = np.random.default_rng(0)
        self.best: list[int] | None = None
        self.cost = _FIRST_CAP
        self.lower = 0
        self._cap(_FIRST_CAP)

    def _cap(self, cap: int) -> None:
        """What costs more than the best plan need not be told from what costs as much; and begins the bound anew."""
        self._capped = cap
        tables = [(one, other, np.minimum(table, cap).astype(np.float64)) for one, other, table in self._pairs]
        self._floats = [np.minimum(own, cap).astype(np.float64) for own in self._own]
        before = getattr(self, "_dual", None)
        self._dual = Dual(self._floats, tables)
        if before is not None:
            for pair, old in zip(self._dual.pairs, before.pairs, strict=True):
                pair.to_first, pair.to_second = old.to_first, old.to_second
        self._near: list[list[tuple[int, Floats]]] = [[] for _ in self._own]
        for one, other, table in tables:
            self._near[one].append((other, table))
            self._near[other].append((one, table.T))

    def run(self, most_rounds: int) -> None:
        """Passes and prices until the time is spent or a plan is proven best.

        Plans are looked for once prices have settled: at the first ones proposals are far from plans.
        """
        exact, looked, passed = -np.inf, 0.0, 0.0
        begun_with = process_time()
        late = begun_with + _LATE * (self._until - begun_with)
        for number in range(most_rounds):
            if number and (process_time() >= self._until or self.lower >= self.cost):
                break
            begun = process_time()
            values, lower = self._guess()
            is_late = begun > late or most_rounds - number < _LAST_ROUNDS
            if lower > exact + abs(exact) * (0 if is_late else _EXACT_GAIN) or number == 0:
                exact = lower
                self.lower = max(self.lower, min(self.cost, self._exact_lower()))
            passed += process_time() - begun
            if (self._search.settled or is_late) and looked < passed * _SHARE_OF_PLANS:
                begun = process_time()
                self._look_for_plans(values)
                looked += process_time() - begun
            self._search.propose(self._cost_of(values), self._memory.taken(values))
            self._search.change(lower, float(self.cost if self.best is not None else max(1.0, lower, exact)))
            self._prices = self._search.by_time()

    def _cost_of(self, values: Sequence[int]) -> int:
        cost = sum(int(own[value]) for own, value in zip(self._own, values, strict=True))
        return cost + sum(int(table[values[one], values[other]]) for one, other, table in self._pairs)

    def _guess(self) -> tuple[list[int], float]:
        """Values that look cheap at the prices, and the bound there in floating point."""
        worth = float(self._prices @ self._memory.spare)
        priced = self._memory.split(self._memory.priced(self._prices))
        self._dual.reprice([own + more for own, more in zip(self._floats, priced, strict=True)])
        values: list[int] = []
        for _ in range(_PASSES):
            values = self._dual.forward()
            self._dual.backward()
            if process_time() > self._until:
                break
        return values, self._dual.lower - worth

    def _exact_lower(self) -> int:
        """The bound of what the passes have given and of the prices, both rounded to parts of a power of two.

        Whatever they are, the sum of minima is a bound: so integers are as good, and nothing is lost to rounding.
        """
        memory, pairs = self._memory, self._dual.pairs
        largest = np.array([float(own.max()) for own in self._floats])
        largest += [float(priced.max()) for priced in memory.split(memory.priced(self._prices))]
        for pair in pairs:
            largest[pair.first] += np.abs(pair.to_first).max()
            largest[pair.second] += np.abs(pair.to_second).max()
        bits = min(_MOST_SCALE_BITS, _SUM_BITS - int(max(self._capped, largest.max())).bit_length())
        if bits < 0:
            return 0
        scale = 1 << bits
        prices = np.rint(self._prices * scale).astype(np.int64)
        total = -sum(price * spare for price, spare in zip(prices.tolist(), memory.spare.tolist(), strict=True))
        own = [
            np.minimum(costs, self._capped) * scale + more
            for costs, more in zip(self._own, memory.split(memory.priced(prices)), strict=True)
        ]
        for pair, (_, _, table) in zip(pairs, self._pairs, strict=True):
            to_first = np.rint(pair.to_first * scale).astype(np.int64)
            to_second = np.rint(pair.to_second * scale).astype(np.int64)
            own[pair.first] += to_first
            own[pair.second] += to_second
            total += int((np.minimum(table, self._capped) * scale - to_first[:, None] - to_second).min())
        total += sum(int(one.min()) for one in own)
        # Tables are cut off at the cap, so that dearer plans may seem to cost no more than that.
        return int(min(-(-total // scale), self._capped))

    def _look_for_plans(self, proposed: Sequence[int]) -> None:
        """Takes what passes propose, what they do where chance breaks ties, and the best plan mixed with both."""
        self._look_at(proposed)
        most = (self.cost if self.best is not None else self.lower) * _MOST_CHANCE / len(self._own)
        priced = self._memory.split(self._memory.priced(self._prices))
        changed = [
            own + more + most * self._chance.random(len(own)) for own, more in zip(self._floats, priced, strict=True)
        ]
        self._dual.reprice(changed)
        without_ties: list[int] = list(proposed)
        for _ in range(_PASSES_BY_CHANCE):
            if process_time() > self._until:
                return
            without_ties = self._dual.forward()
            self._dual.backward()
        self._look_at(without_ties)
        for values in (proposed, without_ties):
            for times in _TIMES_OF_PRICES:
                if self.best is None or process_time() > self._until:
                    return
                fused = self._fused(self.best, values, times)
                self._look_at(fused)
                if (self._memory.taken(fused) <= self._memory.spare).all():
                    break

    def _fused(self, plan: Sequence[int], values: Sequence[int], times: float) -> list[int]:
        """By variable one of two values, so that the sum at so many times the prices is least.

        Where that would need tables that are too large, some variables, drawn, stay as in the plan.
        """
        joined = np.array([one != other for one, other in zip(plan, values, strict=True)])
        kept = [np.array([one, other]) for one, other in zip(plan, values, strict=True)]
        priced = self._memory.split(self._memory.priced(self._prices * times))
        for _ in range(_TRIES_TO_FUSE):
            choices = [both if may else both[:1] for both, may in zip(kept, joined.tolist(), strict=True)]
            factors = [
                Factor((variable,), np.rint((own + more)[choice]).astype(np.int64))
                for variable, (own, more, choice) in enumerate(zip(self._floats, priced, choices, strict=True))
                if len(choice) > 1
            ]
            factors += [
                Factor((one, other), np.minimum(table[np.ix_(choices[one], choices[other])], self._capped))
                for one, other, table in self._pairs
                if joined[one] or joined[other]
            ]
            try:
                solution = minimise([len(choice) for choice in choices], factors, _MOST_ENTRIES)
            except InfeasibleError:
                joined &= self._chance.random(len(joined)) < 0.5
                continue
            return [int(choice[value]) for choice, value in zip(choices, solution.values.tolist(), strict=True)]
        return list(plan)

    def _look_at(self, proposed: Sequence[int]) -> None:
        """Puts values within the limit, improves them, and keeps them if they are a better plan."""
        values = list(proposed)
        taken = self._memory.taken(values)
        weight = float(self._prices.max(initial=0)) or 1e-3
        for _ in range(40):
            if (taken <= self._memory.spare).all() or process_time() > self._until:
                break
            self._descend(values, taken, weight)
            weight *= 3
        if (taken > self._memory.spare).any():
            return
        self._descend(values, taken, np.inf)
        cost = self._cost_of(values)
        if cost < self.cost:
            self.best, self.cost = values, cost
            if cost + 1 < self._capped // 2:
                self._cap(cost + 1)

    def _descend(self, values: list[int], taken: Ints, weight: float) -> None:
        """Changes single variables while that is cheaper; ``values`` and ``taken`` change.

        Args:
            values: of the variables.
            taken: by time.
            weight: what a unit above the limit costs; infinite: there is none, and none comes.
        """
        rows = self._memory.rows
        queue = list(range(len(values)))
        waiting = set(queue)
        steps = 0
        while queue and steps < 20 * len(values):
            steps += 1
            if steps % 256 == 0 and process_time() > self._until:
                return
            variable = queue.pop()
            waiting.discard(variable)
            now = values[variable]
            costs = self._floats[variable].copy()
            for other, table in self._near[variable]:
                costs += table[:, values[other]]
            costs -= costs[now]
            if not rows[variable]:
                chosen = int(costs.argmin())
                if costs[chosen] >= 0:
                    continue
            else:
                found = self._within(variable, now, costs, taken, weight)
                if found is None:
                    continue
                chosen = found
                for begin, end, own in rows[variable]:
                    taken[begin:end] += own[chosen] - own[now]
            values[variable] = chosen
            for other, _ in self._near[variable]:
                if other not in waiting:
                    waiting.add(other)
                    queue.append(other)

    def _within(self, variable: int, now: int, costs: Floats, taken: Ints, weight: float) -> int | None:
        """A value that is better than the present one, what it takes counted."""
        rows = self._memory.rows[variable]
        first, last = min(row[0] for row in rows), max(row[1] for row in rows)
        over = taken[first:last] - self._memory.spare[first:last]
        before = int(np.maximum(over, 0).sum())
        best, least = None, -1e-9
        for value in np.argsort(costs, kind="stable").tolist():
            if value == now:
                continue
            if before == 0 and costs[value] >= least:
                break
            change = over.copy()
            for begin, end, own in rows:
                change[begin - first : end - first] += own[value] - own[now]
            excess = int(np.maximum(change, 0).sum())
            if weight == np.inf:
                if excess == 0:
                    return int(value)
                continue
            total = float(costs[value]) + weight * (excess - before)
            if total < least:
                best, least = int(value), total
        return best
