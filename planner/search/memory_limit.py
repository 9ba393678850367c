"""Finding a plan that fits: a price on memory, raised until it does, and then as low as it may be.

For a price of 0 the plan has the best objective (it moves the fewest bytes, or takes the least time), and takes the
most memory; for a high one it takes the least. Between two prices the next one to try is where both plans would cost
the same (the secant of the lower hull of objective and held bytes): the plan that is cheapest there is a new corner of
the hull, or there is none between. What is left between the last plan that fits and the last that does not is closed
by ``mixed``: where the two differ in parts that have nothing to do with each other, each part can be taken from either.

Whether a plan fits is for the caller to say, who measures its program: held bytes only steer the search.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeVar

HIGHEST_PRICE = Fraction(1024)
"""Moved bytes for a held byte: more than any plan could save by holding it."""
LOWEST_PRICE = Fraction(1, 1024)
"""Of plans with one objective, the one that holds less."""
MOST_TRIALS = 14
"""Plans that are made at most."""

P = TypeVar("P")
N = TypeVar("N", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Measured(Generic[P]):
    """A plan and what it takes."""

    plan: P
    objective: int
    """What is to be small: moved bytes, or picoseconds."""
    held_bytes: int
    """The proxy that has the price (``planner.cost.priced``)."""
    excess_bytes: int
    """What the worker that lacks the most memory lacks; 0 or less: the plan fits."""

    @property
    def is_fitting(self) -> bool:
        return self.excess_bytes <= 0


@dataclass(frozen=True, slots=True)
class Fit(Generic[P]):
    """What was found between a plan that costs little and one that takes little."""

    best: Measured[P]
    """The cheapest plan of those that fit; the one that lacks the least memory if none fits."""
    dearer: Measured[P] | None
    """The plan next to it that is cheaper and does not fit; None if the first one fits."""
    trials: int
    """Plans that were made."""


def fit(
    first: Measured[P], plan_for: Callable[[Fraction], Measured[P]], highest_price: Fraction = HIGHEST_PRICE
) -> Fit[P]:
    """Searches for the cheapest plan of those that fit.

    Args:
        first: the plan for a price of 0.
        plan_for: makes and measures the plan for a price of a held byte.
        highest_price: at which the plan takes the least memory, whatever it costs otherwise.

    Returns:
        The plan, which need not fit: then none that was found does.
    """
    if first.is_fitting:
        return Fit(first, None, 0)
    tried = [first]

    def plan(price: Fraction) -> Measured[P]:
        tried.append(plan_for(price))
        return tried[-1]

    over = plan(LOWEST_PRICE)
    if over.is_fitting:
        return Fit(over, first, 1)
    under = plan(highest_price)
    # The proxy is no judge: the plan for the highest price may fail where one in between fits.
    unknown = deque([(over, under)])
    while not under.is_fitting and unknown and len(tried) < MOST_TRIALS:
        left, right = unknown.popleft()
        found = _between(left, right, plan)
        if found is not None and found.is_fitting:
            over, under = left, found
        elif found is not None:
            unknown += [(left, found), (found, right)]
    while under.is_fitting and len(tried) < MOST_TRIALS:
        found = _between(over, under, plan)
        if found is None:
            break
        if found.is_fitting:
            under = found
        else:
            over = found
    fitting = [one for one in tried if one.is_fitting]
    if not fitting:
        return Fit(min(tried, key=lambda one: one.excess_bytes), first, len(tried) - 1)
    best = min(fitting, key=lambda one: (one.objective, one.excess_bytes))
    return Fit(best, over, len(tried) - 1)


def _between(over: Measured[P], under: Measured[P], plan_for: Callable[[Fraction], Measured[P]]) -> Measured[P] | None:
    """The corner of the hull between two plans; None if there is none."""
    saved, cost = over.held_bytes - under.held_bytes, under.objective - over.objective
    if saved <= 0 or cost <= 0:
        return None
    price = Fraction(cost, saved)
    found = plan_for(price)
    if found.objective + price * found.held_bytes >= over.objective + price * over.held_bytes:
        return None
    return found


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
    held_bytes: int
    """Less that is held."""

    @property
    def rank(self) -> tuple[int, Fraction, int]:
        """In which order parts are taken: those that save memory for nothing first, then by price."""
        if self.held_bytes <= 0:
            # It saves no memory as the proxy counts: taken last, and only because the program may see it otherwise.
            return (1, Fraction(self.objective), -self.held_bytes)
        return (0, Fraction(self.objective, self.held_bytes), -self.held_bytes)


def mixed(parts: Sequence[Part[N]], measure: Callable[[Sequence[Part[N]]], Measured[P]]) -> Measured[P]:
    """The cheapest plan that fits among those that take the cheapest parts from the fitting plan.

    Args:
        parts: all in which the two plans differ; with all of them taken, the plan fits.
        measure: the plan that does not fit, with these parts taken from the one that does.
    """
    ranked = sorted(parts, key=lambda part: part.rank)
    best = measure(ranked)
    assert best.is_fitting, "with all parts of the plan that fits, it is that plan"
    low, high = 0, len(ranked)
    # The fewest parts that fit; the judge need not agree with the order, so every plan that fits is a candidate.
    while high - low > 1:
        middle = (low + high) // 2
        found = measure(ranked[:middle])
        if found.is_fitting:
            high = middle
            best = min(best, found, key=lambda plan: plan.objective)
        else:
            low = middle
    return best
