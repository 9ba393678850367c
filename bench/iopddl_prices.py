"""Prices of memory for ``iopddl``: at few times, moved to where the bound is highest.

The bound as a function of prices is concave. No plan within the limit is cheaper than a mixture of proposals, a share
of each; what a proposal costs at other prices is known without passes. So the next prices are the best ones for all
proposals known (Kelley, "The cutting-plane method for solving convex programs", 1960), near the best so far. Proposals
are not the cheapest plans at their prices, and where that misleads, prices follow what proposals take above the limit.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from iopddl_instance import Ints

from planner.search.bound.dual import Floats

_MOST_TIMES: Final = 60
_NEW_TIMES: Final = 3
"""At which a proposal takes the most above the limit, after which they have a price."""
_APART: Final = 40
"""Times that get a price together are apart by one in so many."""
_LEAST_EXCESS: Final = 1e-3
"""Of the limit."""
_MOST_PROPOSALS: Final = 300
_FIRST_WIDTH: Final = 0.1
_MOST_WIDTH: Final = 0.3
_LEAST_WIDTH: Final = 2e-3
"""How far from the best prices the next ones may be, as a share of them."""
_FAR: Final = 4.0
"""The same where half of the way is gone."""
_SHARE_OF_HIGHEST: Final = 0.3
_LEAST_PRICE: Final = 0.1
"""A price is taken for at least this share of the highest one, and that much of the worth of everything."""
_LEAST_GAIN: Final = 1e-5
"""Share of the bound; a change of prices that brings less is none."""
_TRIES_NEAR: Final = 3
_TRIES_FAR: Final = 40
_TRIES_ALONG: Final = 12
"""Changes of prices without a better bound after which the next ones are nearer, or found in another way."""
_FIRST_STEP: Final = 0.01
_LAST_STEP: Final = 3e-5
_KEPT_OF_MEAN: Final = 0.7
_KEPT_OF_SQUARE: Final = 0.98
_NO_SHARE: Final = 1e-3
_MOST_PIVOTS: Final = 500
_ROUNDING: Final = 1e-9
_NEAR: Final = "near"
_ALONG: Final = "along"
_HALFWAY: Final = "halfway"


class Prices:
    """What memory costs at each time, in parts of a limit and of what everything is worth.

    Attributes:
        settled: how often a way of finding better prices has ended.
    """

    def __init__(self, spare: Ints, limit: int) -> None:
        """All are 0.

        Args:
            spare: by time, what may be taken.
            limit: of memory, more than 0.
        """
        self.settled = 0
        self._limit = limit
        self._spare: Floats = spare / limit
        self._times: list[int] = []
        self._here = self._best = self._mean = self._square = np.zeros(0)
        self._most = -np.inf
        self._proposals: list[tuple[float, Floats]] = []
        self._way, self._width, self._step, self._tries = _NEAR, _FIRST_WIDTH, _FIRST_STEP, 0

    def by_time(self) -> Floats:
        """What a unit costs."""
        return self._spread(self._here)

    def best_by_time(self) -> Floats:
        """What a unit costs where the bound is the best so far."""
        return self._spread(self._best)

    def _spread(self, prices: Floats) -> Floats:
        found = np.zeros(len(self._spare))
        found[self._times] = prices / self._limit
        return found

    def propose(self, cost: float, taken: Ints) -> None:
        """Takes note of a proposal at the present prices.

        Args:
            cost: without that of memory.
            taken: by time.
        """
        self._proposals = [*self._proposals[1 - _MOST_PROPOSALS :], (cost, taken / self._limit - self._spare)]

    def change(self, lower: float, worth: float) -> None:
        """Looks for better prices, after at least one proposal.

        Args:
            lower: the bound at the present ones.
            worth: about what a plan costs, more than 0.
        """
        is_better = lower > self._most + abs(self._most) * _LEAST_GAIN or not np.isfinite(self._most)
        if lower > self._most:
            self._most, self._best = lower, self._here
        self._add_times()
        if not self._times:
            self.settled = int(self.settled or not is_better)
            return
        self._tries = 0 if is_better else self._tries + 1
        if self._way == _NEAR:
            self._look_near(is_better, worth)
        elif self._way == _HALFWAY:
            if self._tries > _TRIES_FAR:
                self._turn(_ALONG)
            else:
                self._here = (self._best + self._model(_FAR, worth)) / 2
        else:
            self._follow(worth)

    def _add_times(self) -> None:
        """Gives a price to times at which the last proposal takes the most above the limit."""
        over = self._proposals[-1][1].copy()
        apart = max(1, len(over) // _APART)
        for _ in range(_NEW_TIMES):
            time = int(over.argmax()) if len(over) else 0
            if not len(over) or over[time] <= _LEAST_EXCESS or len(self._times) == _MOST_TIMES or time in self._times:
                return
            self._times.append(time)
            self._here, self._best = np.append(self._here, 0.0), np.append(self._best, 0.0)
            self._mean, self._square = np.append(self._mean, 0.0), np.append(self._square, 0.0)
            over[max(0, time - apart) : time + apart] = -1

    def _look_near(self, is_better: bool, worth: float) -> None:
        """Takes the best prices for all proposals, within a width that grows where that helps and shrinks else."""
        if is_better:
            self._width = min(_MOST_WIDTH, self._width * 1.5)
        elif self._tries % _TRIES_NEAR == 0:
            self._width /= 2
        if self._width < _LEAST_WIDTH:
            self._turn(_ALONG)
        else:
            self._here = self._model(self._width, worth)

    def _follow(self, worth: float) -> None:
        """Follows what proposals take above the limit, averaged and as a share of what that is usually.

        Source: Kingma and Ba, "Adam", 2015. Where that does not help, steps are halved, from the best prices on.
        """
        if self._tries >= _TRIES_ALONG:
            self._step, self._tries, self._here = self._step / 2, 0, self._best
            if self._step < _LAST_STEP:
                self._turn(_HALFWAY)
            return
        over = self._proposals[-1][1][self._times]
        self._mean = _KEPT_OF_MEAN * self._mean + (1 - _KEPT_OF_MEAN) * over
        self._square = _KEPT_OF_SQUARE * self._square + (1 - _KEPT_OF_SQUARE) * over**2
        moved = self._here + self._step * worth * self._mean / (np.sqrt(self._square) + _NO_SHARE)
        self._here = np.maximum(0, moved)

    def _turn(self, way: str) -> None:
        """Goes on in another way, from the best prices on."""
        self.settled += 1
        self._way, self._tries, self._step, self._here = way, 0, _FIRST_STEP, self._best
        self._mean, self._square = np.zeros(len(self._times)), np.zeros(len(self._times))

    def _model(self, width: float, worth: float) -> Floats:
        """The prices at which the cheapest proposal costs the most, within a width of the best ones known."""
        best = self._best / worth
        reach = width * np.maximum(best, _SHARE_OF_HIGHEST * best.max() + _LEAST_PRICE)
        least = np.maximum(0, best - reach)
        over = np.array([own[self._times] for _, own in self._proposals])
        costs = np.array([cost for cost, _ in self._proposals]) / worth + over @ least
        found: Floats = (least + best_prices(costs, over, best + reach - least)) * worth
        return found


def best_prices(costs: Floats, over: Floats, highest: Floats) -> Floats:
    """The prices, each from 0 to its highest, at which the cheapest of some plans costs the most.

    Args:
        costs: of each plan; shape [plans].
        over: by plan and time what has a price; shape [plans, times].
        highest: of the prices.

    They are the dual values of the cheapest mixture of plans that pays the highest price for what it has over
    (``planner.search.memory.prices`` on exact fractions, which hundreds of plans would be too many for).
    """
    plans, times = over.shape
    rows = np.zeros((times + 1, plans + 2 * times + 1))
    rows[0, :plans] = rows[0, -1] = 1
    rows[1:, :plans], rows[1:, plans : plans + times] = over.T, -np.eye(times)
    rows[1:, plans + times : -1] = np.eye(times)
    first = int((costs + np.maximum(over, 0) @ highest).argmin())
    rows[1:] -= np.outer(over[first], rows[0])
    is_over = over[first] > 0
    rows[1:][is_over] *= -1
    basis = [first, *(plans + np.where(is_over, 0, times) + np.arange(times))]
    price = np.concatenate([costs, highest, np.zeros(times + 1)])
    price = price - price[basis] @ rows
    for _ in range(_MOST_PIVOTS):
        entering = int(price[:-1].argmin())
        column = rows[:, entering]
        if price[entering] >= -_ROUNDING or column.max() <= _ROUNDING:
            break
        ratios = np.where(column > _ROUNDING, rows[:, -1] / np.where(column > _ROUNDING, column, 1), np.inf)
        leaving = int(ratios.argmin())
        pivot = rows[leaving] / rows[leaving, entering]
        rows -= np.outer(column, pivot)
        rows[leaving] = pivot
        price -= price[entering] * pivot
    found: Floats = np.clip(price[plans + times : -1], 0, highest)
    return found
