"""Finding a plan that fits: prices on memory at the moments at which plans are fullest.

A plan is best without a price on memory, and then takes the most. What it takes is told in two ways: by its program,
which alone judges whether it fits, and by its residence at each moment (``planner.cost.residence``), on which the
search can put a price. So the search aims at a residence, as far below that of the first plan as its program is above
the limit; the prices that lead there come from the plans known so far (``planner.search.memory.prices``), plan by plan,
until no plan is new. If the best plan at the aim does not fit, or has room to spare, the aim is moved.

Prices lead to the corners of a hull; what lies between is closed by mixing (``planner.planning.limit.mixing``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.search.effort import EQUAL_AIMS, HIGHEST_PRICE, LOWEST_PRICE, MOST_TRIALS
from planner.search.memory.prices import cheapest_mixture
from planner.stop import StoppedError

P = TypeVar("P")
Prices: TypeAlias = Mapping[int, Fraction]
"""The price of a byte on any worker, by moment."""


@dataclass(frozen=True, slots=True, eq=False)
class Measured(Generic[P]):
    """A plan and what it takes."""

    plan: P
    objective: int
    """The quantity that is to be small: cost in bytes, or picoseconds."""
    residence: NDArray[np.int64]
    """Bytes on all workers together, by moment."""
    excess_bytes: int
    """The missing bytes of the worker that lacks the most memory; 0 or less: the plan fits."""

    @property
    def is_fitting(self) -> bool:
        return self.excess_bytes <= 0

    @property
    def fullest(self) -> int:
        """The moment at which the most lies there, the first of them."""
        return int(self.residence.argmax())

    @property
    def most_bytes(self) -> int:
        """The bytes that lie there then."""
        return int(self.residence.max(initial=0))


Planner: TypeAlias = Callable[[Prices], Measured[P]]
"""Makes and measures the plan for prices."""


def at_prices(
    first: Measured[P],
    plan_for: Planner[P],
    workers: int,
    highest_price: Fraction = HIGHEST_PRICE,
    most_trials: int = MOST_TRIALS,
) -> tuple[list[Measured[P]], Prices]:
    """Searches for the cheapest plan of those that fit.

    Args:
        first: the plan without prices.
        plan_for: makes and measures the plan for prices.
        workers: how many.
        highest_price: at which the plan takes the least memory, whatever it costs otherwise.
        most_trials: plans that are searched for at most.

    Returns:
        The plans that were tried, the first one among them, none of which need fit; and the prices at which the best
        one that fits was found, about.
    """
    if first.is_fitting:
        return [first], {}
    prices: Prices = {first.fullest: LOWEST_PRICE}
    tried = [first, plan_for(prices)]
    if not tried[-1].is_fitting:
        with contextlib.suppress(StoppedError):  # what was tried until then is there
            prices = _hunt(tried, plan_for, workers, highest_price, most_trials)
    return tried, prices


def _hunt(
    tried: list[Measured[P]], plan_for: Planner[P], workers: int, highest_price: Fraction, most_trials: int
) -> Prices:
    """Adds plans to those that were tried, aim by aim; the last prices of an aim at which a plan fits."""
    tried_prices: list[Prices] = []
    fitting_prices: Prices = {}

    def aim_of(plan: Measured[P]) -> int:
        """Residence of a plan like this one that would just fit."""
        return plan.most_bytes - workers * plan.excess_bytes

    low, high = 0, tried[0].most_bytes
    aim = aim_of(tried[0])
    while True:
        while len(tried) <= most_trials:
            prices = _prices(tried, aim, highest_price)
            if prices in tried_prices:
                break
            tried_prices.append(prices)
            tried.append(plan_for(prices))
        candidates = [plan for plan in tried if plan.most_bytes <= aim]
        best = min(candidates, key=lambda plan: (plan.objective, plan.excess_bytes), default=None)
        # The program judges, not the residence: the cheapest plan at the aim may still take too much.
        if best is not None and not best.is_fitting:
            high = min(high, aim)
        else:
            low = max(low, aim)
            fitting_prices = prices if best is not None else fitting_prices
        if len(tried) > most_trials or high - low <= 1 + high * EQUAL_AIMS:
            return fitting_prices or prices
        following = aim_of(best) if best is not None else 0
        aim = following if low < following < high else (low + high) // 2


def _prices(tried: Sequence[Measured[P]], aim: int, highest_price: Fraction) -> Prices:
    """Prices at the moments at which known plans are fullest, at which the cheapest mixture of plans is at the aim."""
    moments = sorted({plan.fullest for plan in tried})
    excesses = [(plan.residence[moments] - aim).tolist() for plan in tried]
    _, prices = cheapest_mixture([plan.objective for plan in tried], excesses, highest_price)
    return {moment: price for moment, price in zip(moments, prices, strict=True) if price}
