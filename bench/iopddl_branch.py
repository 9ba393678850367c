"""Branching for ``iopddl``: which plans could be cheaper than the best one is narrowed down until none is left.

Of some values of each variable a bound is known (``planner.search.bound.dual``), and by value how much dearer plans
with it are at least, so that some are dropped: those with which no plan is cheaper than the best one, and those that
are not within the limit where all other variables take their least. What has small tables then is solved exactly; else
one variable is set to the value that looks best, and later to the others. All sums that decide are of integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import process_time
from typing import Final, Protocol

import numpy as np
from grouped_dual import reprice
from iopddl_instance import Ints
from iopddl_prices import best_prices
from numpy.typing import NDArray

from planner.errors import InfeasibleError
from planner.search.bound.dual import Dual, Floats
from planner.search.exact.eliminate import Factor, minimise

_MOST_ENTRIES: Final = 1 << 20
"""Of a table on the way to an exact solution."""
_PASSES: Final = 3
"""Forward and back, between two looks at which values may be dropped."""
_ENOUGH: Final = 0.02
"""Share of values, and of what is open; where less goes by one look, what is left is solved or branched on."""
_MOST_LOOKS: Final = 12
_MOST_PROPOSALS: Final = 60
_MOST_EXACT: Final = 1 << 50
"""Integers of this size and some sums of them are exact in floating point."""
_MOST_PAID: Final = 1 << 61
"""At prices in their finer parts, for as much as the limit."""
_FAR: Final = 2.0
_LEAST_PRICE: Final = 0.1
"""A price of a part is at most so many times the present one, and more by this share of the best plan's cost, for as
much as the limit."""


class Limit(Protocol):
    """What is within the limit on memory.

    Attributes:
        limit: of memory.
        spare: by time, what may be taken.
    """

    limit: int
    spare: Ints

    def may_be(self, kept: Sequence[Ints]) -> list[NDArray[np.bool_]] | None:
        """By variable which of these values may be in a plan of these values; None where there is no plan."""

    def taken(self, values: Sequence[int]) -> Ints:
        """By time what values take."""

    def priced(self, prices: Ints) -> Ints:
        """What all values of all variables take, at a price for each time; flat."""

    def worth(self, prices: Ints, finer: int) -> int:
        """What may be taken costs at prices in parts of ``2**finer``, rounded up."""

    def split(self, flat: Ints) -> list[Ints]:
        """By variable."""


@dataclass(slots=True)
class _Part:
    """Plans of some values, and prices of memory."""

    dual: Dual
    kept: list[Ints]
    prices: Ints
    worth: int
    lower: int
    """What a plan of these values costs at least, scaled."""


@dataclass(frozen=True, slots=True)
class _Proposal:
    values: Ints
    cost: float
    """Of the best plan's."""
    over: Floats
    """By time what is taken above the limit, of the limit."""


class Branching:
    """The search for a plan that is cheaper than the best one."""

    def __init__(
        self,
        dual: Dual,
        scale: int,
        limit: Limit,
        prices: tuple[Ints, int],
        cost_of: Callable[[list[int]], int],
        consider: Callable[[list[int]], int],
    ) -> None:
        """Begins with all plans.

        Args:
            dual: of the sum without prices, all its costs integers below 2^53, ``scale`` times as large as they are.
            scale: a factor.
            limit: of memory.
            prices: of memory by time, scaled, in parts of a power of two, and the exponent of that.
            cost_of: what values cost, not scaled.
            consider: takes what may be a better plan; returns the best one's cost.
        """
        self._scale, self._limit, self._cost_of, self._consider = scale, limit, cost_of, consider
        first, self._finer = prices
        self._times = np.flatnonzero(first).tolist()
        self._proposals: list[_Proposal] = []
        kept = [np.arange(len(costs)) for costs in dual.own]
        self._cost = consider([0] * len(kept))
        nothing = _Part(dual, kept, np.zeros_like(first), 0, 0)
        self._price(nothing, first)
        self._open = [nothing]

    def _most(self) -> int:
        """What plans cost at most, scaled, that are cheaper than the best one."""
        return (self._cost - 1) * self._scale

    def _price(self, part: _Part, prices: Ints) -> None:
        """Gives other prices to a part."""
        before, after = (self._limit.split(self._limit.priced(some) >> self._finer) for some in (part.prices, prices))
        own = [
            costs + (new[kept] - old[kept])
            for costs, kept, old, new in zip(part.dual.own, part.kept, before, after, strict=True)
        ]
        reprice(part.dual, own)
        part.prices, part.worth = prices, self._limit.worth(prices, self._finer)

    def _better_prices(self, part: _Part, values: list[int]) -> Ints | None:
        """The best ones for all proposals known that are of the part; None if that are the present ones."""
        over: Floats = (self._limit.taken(values) - self._limit.spare) / max(1, self._limit.limit)
        self._proposals = [
            *self._proposals[1 - _MOST_PROPOSALS :],
            _Proposal(np.array(values), self._cost_of(values) / self._cost, over),
        ]
        worst = int(over.argmax()) if len(over) else 0
        if len(over) and over[worst] > 0 and worst not in self._times:
            self._times.append(worst)
        if not self._times:
            return None
        inside = np.zeros((len(part.kept), max(int(own.max()) for own in part.kept) + 1), dtype=np.bool_)
        for variable, own in enumerate(part.kept):
            inside[variable, own] = True
        near = [
            one
            for one in self._proposals
            if one.values.max() < inside.shape[1] and inside[np.arange(len(inside)), one.values].all()
        ]
        if not near:
            return None
        unit = self._cost * self._scale * 2.0**self._finer / max(1, self._limit.limit)
        highest = np.array(_FAR * part.prices[self._times] / unit + _LEAST_PRICE, dtype=np.float64)
        exceeding = np.array([one.over[self._times] for one in near])
        found = best_prices(np.array([one.cost for one in near]), exceeding, highest)
        prices = np.zeros_like(part.prices)
        prices[self._times] = np.rint((found * unit + part.prices[self._times]) / 2).astype(np.int64)
        paid = sum(prices.tolist()) * self._limit.limit
        is_exact = paid < _MOST_PAID and paid >> self._finer < _MOST_EXACT
        return prices if is_exact and (prices != part.prices).any() else None

    def run(self, until: float) -> int:
        """Narrows down.

        Args:
            until: the second of ``time.process_time`` at which it ends.

        Returns:
            What every plan costs at least, not scaled; the best one's cost if that was proven.
        """
        while self._open and process_time() < until:
            part = self._open.pop()
            if self._narrow(part, until):
                self._branch(part)
            elif process_time() >= until:
                self._open.append(part)
        if not self._open:
            return self._cost
        return min(self._cost, -(-min(part.lower for part in self._open) // self._scale))

    def _narrow(self, part: _Part, until: float) -> bool:
        """Drops values; returns whether there may be a better plan yet, and which one is not known."""
        for _ in range(_MOST_LOOKS):
            if process_time() >= until:
                return False
            values: list[int] = []
            for _ in range(_PASSES):
                values = part.dual.forward()
                part.dual.backward()
            proposed = self._look_at(part, values)
            bound, more = _reduced(part.dual)
            bound -= part.worth
            gained, part.lower = bound - part.lower, max(part.lower, bound)
            may_be = self._limit.may_be(part.kept)
            if bound > self._most() or may_be is None:
                return False
            masks = [(own <= self._most() - bound) & fits for own, fits in zip(more, may_be, strict=True)]
            if not all(mask.any() for mask in masks):
                return False
            before = sum(map(len, part.kept))
            if not all(mask.all() for mask in masks):
                part.dual.keep([np.flatnonzero(mask) for mask in masks])
                part.kept = [own[mask] for own, mask in zip(part.kept, masks, strict=True)]
            prices = self._better_prices(part, proposed)
            if prices is not None:
                self._price(part, prices)
            is_little = sum(map(len, part.kept)) >= before * (1 - _ENOUGH)
            if is_little and gained < _ENOUGH * (self._most() - bound):
                break
        return self._solve(part)

    def _look_at(self, part: _Part, values: Sequence[int]) -> list[int]:
        """Values of all variables, not only of those kept; they may be a better plan."""
        found = [int(own[value]) for own, value in zip(part.kept, values, strict=True)]
        self._cost = min(self._cost, self._consider(found))
        return found

    def _solve(self, part: _Part) -> bool:
        """Solves what has small tables; returns whether there may be a better plan yet."""
        factors = [Factor((number,), own.astype(np.int64)) for number, own in enumerate(part.dual.own)]
        factors += [Factor((pair.first, pair.second), pair.table.astype(np.int64)) for pair in part.dual.pairs]
        try:
            solution = minimise([len(own) for own in part.kept], factors, _MOST_ENTRIES)
        except InfeasibleError:
            return True
        part.lower = max(part.lower, solution.total - part.worth)
        self._look_at(part, solution.values.tolist())
        return part.lower <= self._most() and any(len(own) > 1 for own in part.kept)

    def _branch(self, part: _Part) -> None:
        """Sets the variable around which what a pass proposes costs the most above the bound."""
        values = part.dual.forward()
        part.dual.backward()
        _, more = _reduced(part.dual)
        above = np.zeros(len(values))
        for pair in part.dual.pairs:
            rest = pair.table - pair.to_first[:, None] - pair.to_second
            above[[pair.first, pair.second]] += rest[values[pair.first], values[pair.second]] - rest.min()
        above[[len(own) == 1 for own in part.kept]] = -1
        variable = int(above.argmax())
        first = int(more[variable].argmin())
        others = np.delete(np.arange(len(more[variable])), first)
        for chosen in (others, np.array([first])):
            masks = [np.arange(len(own)) for own in part.kept]
            masks[variable] = chosen
            dual = part.dual.among(masks)
            dual.keep([np.arange(len(own)) for own in masks])
            kept = [own[mask] for own, mask in zip(part.kept, masks, strict=True)]
            self._open.append(_Part(dual, kept, part.prices, part.worth, part.lower))


def _reduced(dual: Dual) -> tuple[int, list[Floats]]:
    """The bound, and by value how much more than that a plan with it costs at least; what is given is rounded.

    Where numbers are too large to be exact, there is no bound.
    """
    found = [costs.copy() for costs in dual.own]
    for pair in dual.pairs:
        pair.to_first, pair.to_second = np.rint(pair.to_first), np.rint(pair.to_second)
        found[pair.first] += pair.to_first
        found[pair.second] += pair.to_second
    given = [given for pair in dual.pairs for given in (pair.to_first, pair.to_second)]
    if max(float(np.abs(costs).max()) for costs in (*found, *given)) > _MOST_EXACT:
        return -_MOST_PAID, found
    bound = sum(int(costs.min()) for costs in found)
    more = [costs - costs.min() for costs in found]
    for pair in dual.pairs:
        for_first, for_second = pair.rest_for_first(), pair.rest_for_second()
        least = for_first.min()
        bound += int(least)
        more[pair.first] += for_first - least
        more[pair.second] += for_second - least
    return bound, more
