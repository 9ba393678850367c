"""Finding a plan that fits: prices on memory at the moments at which plans are fullest.

A plan is best without a price on memory, and then takes the most. What it takes is told in two ways: by its program,
which alone judges whether it fits, and by its residence at each moment (``planner.cost.residence``), on which the
search can put a price. So the search aims at a residence, as far below that of the first plan as its program is above
the limit; the prices that lead there come from the plans known so far (``planner.search.memory.prices``), plan by plan,
until no plan is new. If the best plan at the aim does not fit, or has room to spare, the aim is moved.

Prices lead to the corners of a hull. Where the best plan that fits and a cheaper one that does not differ in parts that
have nothing to do with each other, each part can be taken from either: ``mixed`` closes what is left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.search.effort import EQUAL_AIMS, HIGHEST_PRICE, LOWEST_PRICE, MOST_GIVEN_BACK, MOST_TRIALS, PRICE_TILTS
from planner.search.memory.prices import cheapest_mixture
from planner.stop import StoppedError

P = TypeVar("P")
N = TypeVar("N", bound=Hashable)
Prices: TypeAlias = Mapping[int, Fraction]
"""Of a byte on any worker, by moment."""


@dataclass(frozen=True, slots=True, eq=False)
class Measured(Generic[P]):
    """A plan and what it takes."""

    plan: P
    objective: int
    """What is to be small: cost in bytes, or picoseconds."""
    residence: NDArray[np.int64]
    """Bytes on all workers together, by moment."""
    excess_bytes: int
    """What the worker that lacks the most memory lacks; 0 or less: the plan fits."""

    @property
    def is_fitting(self) -> bool:
        return self.excess_bytes <= 0

    @property
    def fullest(self) -> int:
        """The moment at which the most lies there, the first of them."""
        return int(self.residence.argmax())

    @property
    def most_bytes(self) -> int:
        """What lies there then."""
        return int(self.residence.max(initial=0))


Planner: TypeAlias = Callable[[Prices, Fraction], Measured[P]]
"""Makes and measures the plan for prices, and for how they are tilted (``Residence.weights``)."""


@dataclass(frozen=True, slots=True)
class Fit(Generic[P]):
    """What was found."""

    best: Measured[P]
    """The cheapest plan of those that fit; the one that lacks the least memory if none fits."""
    cheaper: tuple[Measured[P], ...]
    """Plans that are cheaper and do not fit, the dearest first; none if the first one fits."""
    prices: Prices
    """At which the best plan was found, about; none if the first one fits."""
    trials: int
    """Plans that were searched for."""


def fit(
    first: Measured[P],
    plan_for: Planner[P],
    workers: int,
    highest_price: Fraction = HIGHEST_PRICE,
    most_trials: int = MOST_TRIALS,
) -> Fit[P]:
    """Searches for the cheapest plan of those that fit.

    Args:
        first: the plan without prices.
        plan_for: makes and measures the plan for prices.
        workers: how many.
        highest_price: at which the plan takes the least memory, whatever it costs otherwise.
        most_trials: plans that are searched for at most.

    Returns:
        The plan, which need not fit: then none that was found does.
    """
    if first.is_fitting:
        return Fit(first, (), {}, 0)
    prices: Prices = {first.fullest: LOWEST_PRICE}
    tried = [first, plan_for(prices, Fraction(0))]
    if not tried[-1].is_fitting:
        with contextlib.suppress(StoppedError):  # what was tried until then is there
            prices = _hunt(tried, plan_for, workers, highest_price, most_trials)
    fitting = [one for one in tried if one.is_fitting]
    if not fitting:
        return Fit(min(tried, key=lambda one: (one.excess_bytes, one.objective)), (), prices, len(tried) - 1)
    best = min(fitting, key=lambda one: (one.objective, one.excess_bytes))
    cheaper = sorted((one for one in tried if one.objective < best.objective), key=lambda one: -one.objective)
    return Fit(best, tuple(cheaper), prices, len(tried) - 1)


def _hunt(
    tried: list[Measured[P]], plan_for: Planner[P], workers: int, highest_price: Fraction, most_trials: int
) -> Prices:
    """Adds plans to those that were tried, aim by aim; the last prices of an aim at which a plan fits."""
    known: list[tuple[Prices, Fraction]] = []
    kept: Prices = {}

    def aim_of(plan: Measured[P]) -> int:
        """Residence of a plan like this one that would just fit."""
        return plan.most_bytes - workers * plan.excess_bytes

    low, high = 0, tried[0].most_bytes
    aim = aim_of(tried[0])
    while True:
        while len(tried) <= most_trials:
            prices = _prices(tried, aim, highest_price)
            tilt = next((tilt for tilt in PRICE_TILTS if (prices, tilt) not in known), None)
            if tilt is None:
                break
            known.append((prices, tilt))
            tried.append(plan_for(prices, tilt))
        there = [one for one in tried if one.most_bytes <= aim]
        best = min(there, key=lambda one: (one.objective, one.excess_bytes), default=None)
        if best is not None and not best.is_fitting:
            high = min(high, aim)
        else:
            low = max(low, aim)
            kept = prices if best is not None else kept
        if len(tried) > most_trials or high - low <= 1 + high * EQUAL_AIMS:
            return kept or prices
        following = aim_of(best) if best is not None else 0
        aim = following if low < following < high else (low + high) // 2


def _prices(tried: Sequence[Measured[P]], aim: int, highest_price: Fraction) -> Prices:
    """Prices at the moments at which known plans are fullest, at which the cheapest mixture of plans is at the aim."""
    moments = sorted({plan.fullest for plan in tried})
    excesses = [(plan.residence[moments] - aim).tolist() for plan in tried]
    mixture = cheapest_mixture([plan.objective for plan in tried], excesses, highest_price)
    return {moment: price for moment, price in zip(moments, mixture.prices, strict=True) if price}


def components(differing: Iterable[N], links: Iterable[tuple[N, N]]) -> tuple[tuple[N, ...], ...]:
    """The connected parts in which two plans differ.

    Args:
        differing: variables that have another value in each plan.
        links: pairs of variables that share a table.
    """
    group: dict[N, list[N]] = {variable: [variable] for variable in differing}
    for one, other in links:
        if one in group and other in group and group[one] is not group[other]:
            larger, smaller = sorted((group[one], group[other]), key=len, reverse=True)
            larger.extend(smaller)
            for member in smaller:
                group[member] = larger
    return tuple(tuple(part) for part in {id(part): part for part in group.values()}.values())


@dataclass(frozen=True, slots=True)
class Part(Generic[N]):
    """A part in which two plans differ, and what taking it from the one that fits changes."""

    variables: tuple[N, ...]
    objective: int
    """By how much more; parts add up, since no table joins two of them."""
    saved: int
    """Less memory, at the moments at which it has a price."""

    @property
    def rank(self) -> tuple[int, Fraction, int]:
        """In which order parts are taken: those that save memory for nothing first, then by price."""
        if self.saved <= 0:
            # It saves nothing as residence counts: taken last, and only because the program may see it otherwise.
            return (1, Fraction(self.objective), -self.saved)
        return (0, Fraction(self.objective, self.saved), -self.saved)


def mixed(parts: Sequence[Part[N]], measure: Callable[[Sequence[Part[N]]], Measured[P]]) -> Measured[P]:
    """The cheapest plan that fits among those that take the cheapest parts from the fitting plan.

    Args:
        parts: all in which the two plans differ; with all of them taken, the plan fits.
        measure: the plan that does not fit, with these parts taken from the one that does.
    """
    taken = sorted(parts, key=lambda part: part.rank)
    best = measure(taken)
    assert best.is_fitting, "with all parts of the plan that fits, it is that plan"
    low, high = 0, len(taken)
    # The fewest parts that fit; the judge need not agree with the order, so every plan that fits is a candidate.
    while high - low > 1:
        middle = (low + high) // 2
        found = measure(taken[:middle])
        if found.is_fitting:
            high = middle
            best = min(best, found, key=lambda plan: plan.objective)
        else:
            low = middle
    taken = taken[:high]
    # What one part too many saved may make another one needless: the dearest is given back first.
    for part in sorted(taken, key=lambda part: -part.objective)[:MOST_GIVEN_BACK]:
        fewer = [other for other in taken if other is not part]
        if part.objective <= 0 or not fewer:
            break
        found = measure(fewer)
        if found.is_fitting:
            taken = fewer
            best = min(best, found, key=lambda plan: plan.objective)
    return best
