"""Solves instances of ``iopddl``: variables are merged, memory has prices, the rest is message passing.

With a price for what is taken at each time, no plan within the limit costs less than the least of the priced sum, less
what the limit is worth at these prices; and ``planner.search.bound.dual`` bounds that sum. Bounds are computed anew in
integers. Plans are what the passes propose, ties broken by chance, put within the limit and improved variable by
variable; of the best plan and of what is proposed the cheapest mixture by variable is found exactly.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import process_time
from typing import Final, TypeAlias, TypeVar

import numpy as np
from grouped_dual import GroupedDual, reprice
from iopddl_branch import Branching
from iopddl_instance import Instance, Ints
from iopddl_merged import Merged
from iopddl_prices import Prices
from numpy.typing import NDArray

from planner.errors import InfeasibleError
from planner.search.bound.dual import Dual, Floats, Pair
from planner.search.exact.eliminate import Factor, minimise

_FIRST_CAP: Final = 10**15
"""Stands for impossible until there is a plan; sums of it are exact in floating point. No dearer plan is found."""
_PASSES: Final = 5
_MOST_PASSES: Final = 30
_LITTLE_GAIN: Final = 1.5e-4
"""Forward and back, between two changes of prices: more than the fewest while each raises the bound by more than this
share. Prices that are judged before passes have settled at them take a course of their own."""
_SHARE_OF_PLANS: Final = 0.5
"""Of the time of passes, for plans."""
_LITTLE: Final = 0.01
"""Share of values; after so few were dropped no more are looked for."""
_MOST_GAP_TO_BRANCH: Final = 0.04
"""Of a plan's cost."""
_MOST_CHANCE: Final = 1e-2
"""Of what the best plan costs, shared by all variables, what chance adds to a value at most."""
_PASSES_BY_CHANCE: Final = 10
_TIMES_OF_PRICES: Final = (1.0, 1.02, 1.1, 1.5)
"""At which plans are mixed, until a mixture is within the limit."""
_TRIES_TO_FUSE: Final = 8
_MOST_ENTRIES: Final = 1 << 18
"""Of a table on the way to the cheapest mixture of two plans."""
_MOST_DESCENTS: Final = 60
_LEAST_WEIGHT: Final = 0.1
"""Of the highest price, what a unit above the limit costs at first."""
_ROUNDING: Final = 1e-9
_SHARE_OF_EXACT: Final = 0.2
"""Of the time of passes, for bounds computed exactly; and once in the end."""
_LATE: Final = 0.4
_LAST_ROUNDS: Final = 5
"""From this share of the time on, and in the last rounds, plans are looked for even if prices have not settled."""
_MOST_SCALE_BITS: Final = 20
"""Prices and what is given are rounded to no smaller parts than this power of two."""
_PAID_BITS: Final = 58
"""Of what as much as the limit costs, in finer parts."""
_FLOAT_BITS: Final = 46
"""Numbers of so many are added to others and stay integers in floating point."""
_SUM_BITS: Final = 60
"""No number of the integer bound takes more, so that sums of four are in 64 bits."""


Numbers = TypeVar("Numbers", Ints, Floats)


_Passed: TypeAlias = tuple[float, Floats, tuple[Floats, Floats]]
"""A bound in floating point, the prices there, and what tables had given."""


@dataclass(frozen=True, slots=True)
class Solved:
    """What was found: a strategy for each node, if there is a plan, and what no plan costs less than."""

    chosen: list[int] | None
    lower: int


class Memory:
    """What variables take beyond their least, at the times at which the limit may be too little for their most.

    Attributes:
        limit: of the instance.
        sizes: by variable how many values it has.
        spare: by time, what may be taken; shape [times].
        rows: by variable, in order and apart: the first time, the first one after, and what is taken by value.
    """

    def __init__(self, merged: Merged, instance: Instance) -> None:
        """Adds up what merged nodes take.

        Args:
            merged: the variables.
            instance: the nodes.
        """
        numbers = {node: number for number, node in enumerate(merged.left())}
        owner, since, until, pieces = _profiles(merged, instance, numbers)
        starts = np.unique(since)
        lengths = np.array([len(taken) for taken in pieces], dtype=np.int64)
        cells = np.concatenate([*pieces, np.zeros(0, dtype=np.int64)])
        first = np.cumsum(lengths) - lengths
        least: Ints = np.minimum.reduceat(cells, first) if pieces else cells
        most: Ints = np.maximum.reduceat(cells, first) if pieces else cells
        places = np.searchsorted(starts, since), np.searchsorted(starts, until)
        at_least, at_most = (_over_time(*places, taken, len(starts)) for taken in (least, most))
        binding = np.flatnonzero(at_most > instance.limit)
        lower, upper = np.searchsorted(binding, places[0]), np.searchsorted(binding, places[1])
        rows: list[tuple[int, int, int, Ints]] = []
        for piece in np.flatnonzero((least < most) & (lower < upper)).tolist():
            number, own = int(owner[piece]), pieces[piece] - least[piece]
            if rows and rows[-1][0] == number and rows[-1][2] == lower[piece] and (rows[-1][3] == own).all():
                rows[-1] = (number, rows[-1][1], int(upper[piece]), own)
            else:
                rows.append((number, int(lower[piece]), int(upper[piece]), own))
        # Of times at which the same rows are alive, the one with the least to spare counts.
        edges = np.unique(np.array([0, *(time for _, *span, _ in rows for time in span)], dtype=np.int64))
        edges = edges[edges < len(binding)]
        spare = instance.limit - at_least[binding]
        self.limit = instance.limit
        self.spare: Ints = np.minimum.reduceat(spare, edges) if len(binding) else spare
        self.rows: list[list[tuple[int, int, Ints]]] = [[] for _ in numbers]
        for number, *span, own in rows:
            begin, end = np.searchsorted(edges, np.array(span)).tolist()
            self.rows[number].append((begin, end, own))
        self.sizes = [len(costs) for costs in (merged.own[node] for node in numbers) if costs is not None]
        self._starts = np.concatenate([[0], np.cumsum(self.sizes)])
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

    def may_be(self, kept: Sequence[Ints]) -> list[NDArray[np.bool_]] | None:
        """By variable which of these values may be in a plan of these values; None where there is no plan."""
        is_kept = np.zeros(int(self._starts[-1]), dtype=np.bool_)
        is_kept[np.concatenate([start + own for start, own in zip(self._starts[:-1].tolist(), kept, strict=True)])] = 1
        if not len(self._first):
            return [np.ones(len(own), dtype=np.bool_) for own in kept]
        least = np.minimum.reduceat(np.where(is_kept[self._cell], self._taken, self._taken.max()), self._first)
        spare = self.spare - _over_time(self._begin, self._end, least, len(self.spare))
        if spare.min() < 0:
            return None
        within = _least_of_ranges(spare, self._begin, self._end)
        is_kept[self._cell[self._taken > (least + within)[self._row]]] = 0
        return [mask[own] for mask, own in zip(np.split(is_kept, self._starts[1:-1]), kept, strict=True)]

    def priced(self, prices: Numbers) -> Numbers:
        """What all values of all variables take, at a price for each time; flat, of the prices' type."""
        until = np.concatenate([np.zeros(1, dtype=prices.dtype), prices.cumsum()])
        found = np.zeros(int(self._starts[-1]), dtype=prices.dtype)
        np.add.at(found, self._cell, self._taken * (until[self._end] - until[self._begin])[self._row])
        return found

    def worth(self, prices: Ints, finer: int) -> int:
        """What may be taken costs at prices in parts of ``2**finer``, rounded up."""
        found = sum(int(prices[time]) * int(self.spare[time]) for time in np.flatnonzero(prices))
        return -(-found >> finer)

    def split(self, flat: Numbers) -> list[Numbers]:
        """By variable."""
        return np.split(flat, self._starts[1:-1])

    def taken_at(self, time: int) -> list[tuple[int, Ints]]:
        """Of each variable that takes memory at a time: its number, and what by value."""
        rows = np.flatnonzero((self._begin <= time) & (time < self._end)).tolist()
        return [
            (int(self._variable[row]), self._taken[self._first[row] :][: self.sizes[self._variable[row]]])
            for row in rows
        ]

    def taken(self, values: Sequence[int]) -> Ints:
        """By time what values take, shape [times]."""
        own = self._taken[self._first + np.array(values, dtype=np.int64)[self._variable]]
        return _over_time(self._begin, self._end, own, len(self.spare))


def _over_time(begin: Ints, end: Ints, taken: Ints, times: int) -> Ints:
    """By time the sum of what is taken, each of it from its beginning until before its end."""
    change = np.zeros(times + 1, dtype=np.int64)
    np.add.at(change, begin, taken)
    np.subtract.at(change, end, taken)
    return change.cumsum()[:-1]


def _least_of_ranges(numbers: Ints, begin: Ints, end: Ints) -> Ints:
    """The least of the numbers from each beginning until before each end, of two spans of a power of two."""
    found = np.empty(len(begin), dtype=np.int64)
    power = np.frexp(end - begin)[1] - 1
    least, width = numbers, 1
    for exponent in range(int(power.max(initial=0)) + 1):
        if exponent:
            least, width = np.minimum(least[:-width], least[width:]), width * 2
        here = power == exponent
        found[here] = np.minimum(least[begin[here]], least[end[here] - width])
    return found


def _profiles(merged: Merged, instance: Instance, numbers: dict[int, int]) -> tuple[Ints, Ints, Ints, list[Ints]]:
    """What the nodes of variables take between two times at which that changes, by variable and time.

    Returns:
        Of each such span the variable's number, the first time, the one after the last, and what is taken by value.
    """
    sums: dict[int, dict[tuple[int, int], Ints]] = {}
    intervals = instance.intervals.tolist()
    for node, (into, strategies) in enumerate(merged.members()):
        lower, upper = intervals[node]
        if lower < upper:
            own = sums.setdefault(numbers[into], {})
            own[lower, upper] = own.get((lower, upper), 0) + instance.usages[node][strategies]
    spans: list[tuple[int, int, int]] = []
    pieces: list[Ints] = []
    for number, own in sums.items():
        if len(own) == 1:
            ((lower, upper), taken), *_ = own.items()
            spans.append((number, lower, upper))
            pieces.append(taken)
            continue
        change = np.array(list(own.values()))
        times, places = np.unique(np.array(list(own)), return_inverse=True)
        places = places.reshape(len(own), 2)
        total = np.zeros((len(times), change.shape[1]), dtype=np.int64)
        np.add.at(total, places[:, 0], change)
        np.subtract.at(total, places[:, 1], change)
        edges = times.tolist()
        spans += [(number, lower, upper) for lower, upper in itertools.pairwise(edges)]
        pieces += list(total.cumsum(axis=0)[:-1])
    owner, since, until = np.array(spans, dtype=np.int64).reshape(len(spans), 3).T
    return owner, since, until, pieces


def _refuse_too_much(memory: Memory) -> None:
    """Refuses variables whose least is too much.

    Raises:
        InfeasibleError: at a time it is more than the limit.
    """
    if (lacks := -int(memory.spare.min(initial=0))) > 0:
        raise InfeasibleError(f"what nodes take at least, within possible pairs, is {lacks:,} more than the limit")


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
    before = sys.maxsize
    while before - sum(memory.sizes) > before * _LITTLE:
        before = sum(memory.sizes)
        _refuse_too_much(memory)
        left = merged.left()
        usages = {left[number]: taken for number, taken in memory.usages().items()}
        fits = memory.may_be([np.arange(size) for size in memory.sizes])
        assert fits is not None, "what is taken at least was looked at"
        merged.drop(usages, dict(zip(left, fits, strict=True)))
        memory = Memory(merged, instance)
    _refuse_too_much(memory)
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
        self._ends = np.array([(one, other) for one, other, _ in self._pairs], dtype=np.int64).reshape(-1, 2)
        self._width = np.array([table.shape[1] for *_, table in self._pairs], dtype=np.int64)
        lengths = np.array([table.size for *_, table in self._pairs], dtype=np.int64)
        self._entry = np.cumsum(lengths) - lengths
        self._entries = np.concatenate([*(table.ravel() for *_, table in self._pairs), np.zeros(0, dtype=np.int64)])
        self._search = Prices(memory.spare, max(1, memory.limit))
        self._prices = self._search.by_time()
        self._chance = np.random.default_rng(0)
        self.best: list[int] | None = None
        self.cost = self._capped = _FIRST_CAP
        self.lower = 0
        self._peaks: dict[int, int] = {}
        self._at_peaks: dict[int, tuple[Ints, Floats]] = {}
        self._exact, self._spent, self._proofs = -np.inf, 0.0, 0
        tables = [(one, other, np.minimum(table, _FIRST_CAP).astype(np.float64)) for one, other, table in self._pairs]
        self._floats = [np.minimum(own, _FIRST_CAP).astype(np.float64) for own in self._own]
        self._dual = GroupedDual(self._floats, tables)
        self._highest: _Passed = (-np.inf, self._prices, self._dual.given())
        self._near: list[list[tuple[int, Floats]]] = [[] for _ in self._own]
        for one, other, table in tables:
            self._near[one].append((other, table))
            self._near[other].append((one, table.T))

    def _cap(self, cap: int) -> None:
        """What costs more than the best plan need not be told from what costs as much."""
        self._capped = cap
        for own in self._floats:
            np.minimum(own, cap, out=own)
        self._dual.cut_off(cap)

    def run(self, most_rounds: int) -> None:
        """Passes and prices until the time is spent or a plan is proven best.

        Plans are looked for once prices have settled: at the first ones proposals are far from plans.
        """
        looked, passed, branched = 0.0, 0.0, 0
        begun_with = process_time()
        late = begun_with + _LATE * (self._until - begun_with)
        for number in range(most_rounds):
            if number and (
                process_time() >= self._until - self._spent / max(1, self._proofs) or self.lower >= self.cost
            ):
                break
            begun = process_time()
            values, lower = self._guess()
            if lower > self._highest[0]:
                self._highest = lower, self._prices, self._dual.given()
            is_late = begun > late or most_rounds - number < _LAST_ROUNDS
            passed += process_time() - begun
            if self._spent <= passed * _SHARE_OF_EXACT:
                self._prove()
            if (self._search.settled or is_late) and looked < passed * _SHARE_OF_PLANS:
                begun = process_time()
                with self._at_the_highest():
                    self._look_for_plans(self._rounded(self._guess()[0]))
                looked += process_time() - begun
            if self._search.settled > branched:
                self._prove()
            is_near = self.cost - self.lower <= self.cost * _MOST_GAP_TO_BRANCH or number + 1 == most_rounds
            if (self._search.settled > branched or number + 1 == most_rounds) and looked and is_near:
                branched, now = self._search.settled, process_time()
                self._branch(min(self._until, now + max(3, now - begun_with)))  # at most half of the time
            self._search.propose(self._cost_of(values), self._memory.taken(values))
            self._search.change(lower, max(1.0, self._highest[0]))
            self._prices = self._search.by_time()
        self._prove()

    def _cost_of(self, values: Sequence[int]) -> int:
        chosen = np.array(values, dtype=np.int64)
        entries = self._entries[self._entry + chosen[self._ends[:, 0]] * self._width + chosen[self._ends[:, 1]]]
        cost = sum(int(own[value]) for own, value in zip(self._own, values, strict=True))
        pairs: list[int] = entries.tolist()
        return cost + sum(pairs)  # beyond 64 bits where pairs are impossible

    def _guess(self) -> tuple[list[int], float]:
        """Values that look cheap at the prices, and the bound there in floating point."""
        worth = float(self._prices @ self._memory.spare)
        priced = self._memory.split(self._memory.priced(self._prices))
        reprice(self._dual, [own + more for own, more in zip(self._floats, priced, strict=True)])
        values: list[int] = []
        for number in range(_MOST_PASSES):
            before = self._dual.lower
            values = self._dual.forward()
            self._dual.backward()
            is_little = self._dual.lower - before <= _LITTLE_GAIN * abs(self._dual.lower - worth)
            if (number >= _PASSES and is_little) or process_time() > self._until:
                break
        return values, self._dual.lower - worth

    def _scaled(self, most_bits: int) -> tuple[int, int, Ints]:
        """A power of two, and the prices so many times, in finer parts.

        Args:
            most_bits: of any number.

        Returns:
            The factor, 0 where numbers are too large; by how many bits prices are finer; the prices.
        """
        memory = self._memory
        largest = np.array([float(own.max()) for own in self._floats])
        largest += [float(priced.max()) for priced in memory.split(memory.priced(self._prices))]
        for pair in self._dual.pairs:
            largest[pair.first] += np.abs(pair.to_first).max()
            largest[pair.second] += np.abs(pair.to_second).max()
        # No value takes more than the limit, so that all that is paid is in 64 bits.
        paid = int(max(float(self._prices.sum()) * memory.limit, self.cost)).bit_length()
        most_bits -= int(max(self._capped, largest.max())).bit_length()
        bits = min(_MOST_SCALE_BITS, most_bits, _PAID_BITS - paid)
        if bits < 0:
            return 0, 0, np.zeros(0, dtype=np.int64)
        finer = _PAID_BITS - bits - paid
        return 1 << bits, finer, np.rint(self._prices * (1 << bits) * (1 << finer)).astype(np.int64)

    def _rounded(self, proposed: list[int]) -> list[int]:
        """What is proposed, or what the instance's own order of variables gives, whichever is cheaper at the prices.

        In that, each has its best value given those before it and what the others have given it.
        """
        rest = self._dual.with_given()
        later: list[list[Pair]] = [[] for _ in rest]
        for pair in self._dual.pairs:
            later[pair.first].append(pair)
        values = []
        for variable, costs in enumerate(rest):
            values.append(int(costs.argmin()))
            for pair in later[variable]:
                rest[pair.second] += pair.table[values[-1]] - pair.to_second
        return min(proposed, values, key=self._dual.cost)

    @contextmanager
    def _at_the_highest(self) -> Iterator[None]:
        """With the prices of the highest bound, and what tables had given there; then with those of before again."""
        held = self._prices, self._dual.given()
        _, self._prices, given = self._highest
        self._dual.give(given)
        yield
        self._prices = held[0]
        self._dual.give(held[1])

    def _prove(self) -> None:
        """Computes the highest bound of passes exactly, if it is above that of before."""
        lower = self._highest[0]
        if lower <= self._exact or self.lower >= self.cost:
            return
        begun = process_time()
        self._exact = lower
        with self._at_the_highest():
            self.lower = max(self.lower, min(self.cost, self._exact_lower()))
        self._spent += process_time() - begun
        self._proofs += 1

    def _exact_lower(self) -> int:
        """The bound of what the passes have given and of the prices, both rounded to parts of a power of two.

        Whatever they are, the sum of minima is a bound: so integers are as good, and nothing is lost to rounding.
        """
        scale, finer, prices = self._scaled(_SUM_BITS)
        if not scale:
            return 0
        memory = self._memory
        total = -memory.worth(prices, finer)
        own = [
            np.minimum(costs, self._capped) * scale + more
            for costs, more in zip(self._own, memory.split(memory.priced(prices) >> finer), strict=True)
        ]
        for pair, (_, _, table) in zip(self._dual.pairs, self._pairs, strict=True):
            to_first = np.rint(pair.to_first * scale).astype(np.int64)
            to_second = np.rint(pair.to_second * scale).astype(np.int64)
            own[pair.first] += to_first
            own[pair.second] += to_second
            total += int((np.minimum(table, self._capped) * scale - to_first[:, None] - to_second).min())
        total += sum(int(one.min()) for one in own)
        # Tables are cut off at the cap, so that dearer plans may seem to cost no more than that.
        return int(min(-(-total // scale), self._capped))

    def _branch(self, until: float) -> None:
        """Branches at the best prices; the best plan is proven where that ends."""
        self._prices = self._search.best_by_time()
        self._guess()
        scale, finer, prices = self._scaled(_FLOAT_BITS)
        if not scale or self.best is None:
            return
        tables = [(one, other, np.minimum(table, self._capped) * float(scale)) for one, other, table in self._pairs]
        dual = Dual([np.minimum(own, self._capped) * float(scale) for own in self._own], tables)
        for pair, old in zip(dual.pairs, self._dual.pairs, strict=True):
            pair.to_first, pair.to_second = old.to_first * scale, old.to_second * scale
        branching = Branching(dual, scale, self._memory, (prices, finer), self._cost_of, self._consider)
        self.lower = max(self.lower, branching.run(until))

    def _consider(self, values: list[int]) -> int:
        self._look_at(values)
        return self.cost

    def _look_for_plans(self, proposed: Sequence[int]) -> None:
        """Takes what passes propose, what they do where chance breaks ties, and the best plan mixed with both."""
        self._look_at(proposed)
        most = (self.cost if self.best is not None else self.lower) * _MOST_CHANCE / len(self._own)
        priced = self._memory.split(self._memory.priced(self._prices))
        changed = [
            own + more + most * self._chance.random(len(own)) for own, more in zip(self._floats, priced, strict=True)
        ]
        reprice(self._dual, changed)
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
        """Puts values within the limit, improves them, and keeps them if they are a better plan.

        What is above the limit costs, at the times where it has been the most: more each time that this is too little.
        """
        values = list(proposed)
        highest = float(self._prices.max(initial=0)) or 1e-3
        weights: dict[int, float] = {}
        is_improved, queue = False, list(range(len(values)))
        for _ in range(_MOST_DESCENTS):
            over: Floats = (self._memory.taken(values) - self._memory.spare).astype(np.float64)
            worst = int(over.argmax()) if len(over) else 0
            is_within = not len(over) or over[worst] <= 0
            if (is_within and is_improved) or process_time() > self._until:
                break
            if not is_within and worst not in self._peaks:
                self._add_peak(worst)
            peaks = np.array(list(self._peaks), dtype=np.int64)
            above = over[peaks] > 0
            for time in peaks[above].tolist():
                least = max(float(self._prices[time]), _LEAST_WEIGHT * highest)
                weights[time] = 2 * weights[time] if time in weights else least
            is_improved = is_within
            by_peak = np.array([np.inf if is_within else weights.get(time, highest) for time in self._peaks])
            if is_within:
                queue = list(range(len(values)))
            self._descend(values, queue, over[peaks], by_peak)
            queue = [variable for variable, (at, _) in self._at_peaks.items() if above[at].any()]
        else:
            return
        if is_within:
            self._take(values)

    def _add_peak(self, time: int) -> None:
        """Takes note of what is taken at a time."""
        for variable, own in self._memory.taken_at(time):
            at, before = self._at_peaks.get(variable, (np.zeros(0, dtype=np.int64), np.zeros((0, len(own)))))
            self._at_peaks[variable] = np.append(at, len(self._peaks)), np.vstack([before, own])
        self._peaks[time] = len(self._peaks)

    def _take(self, values: list[int]) -> None:
        """Keeps values within the limit if they are a better plan."""
        cost = self._cost_of(values)
        if cost < self.cost:
            self.best, self.cost = values, cost
            if cost + 1 < self._capped // 2:
                self._cap(cost + 1)

    def _descend(self, values: list[int], queue: list[int], over: Floats, weights: Floats) -> None:
        """Changes single variables while that is cheaper; ``values``, ``queue`` and ``over`` change.

        Args:
            values: of the variables.
            queue: variables to look at; their neighbours are where they change.
            over: by peak what is taken above the limit.
            weights: by peak what a unit above the limit costs; infinite: no more of it comes.
        """
        is_hard = len(weights) > 0 and weights[0] == np.inf
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
            at = self._at_peaks.get(variable)
            if at is not None:
                peaks, taken = at
                excess = np.maximum((over[peaks] - taken[:, now])[:, None] + taken, 0)
                if is_hard:
                    costs[(excess > excess[:, now : now + 1]).any(axis=0)] = np.inf
                else:
                    more = weights[peaks] @ excess
                    costs += more - more[now]
            chosen = int(costs.argmin())
            if costs[chosen] >= -_ROUNDING:
                continue
            if at is not None:
                over[peaks] += taken[:, chosen] - taken[:, now]
            values[variable] = chosen
            for other, _ in self._near[variable]:
                if other not in waiting:
                    waiting.add(other)
                    queue.append(other)
