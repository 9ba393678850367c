"""What a small sum of pairwise tables costs at least, by cases: a variable has one of its values or another.

Message passing (``planner.search.bound.dual``) may stop below the least of the sum: half of one value and half of
another can look better than any. A case decides a variable, so that its halves are gone, and the bound of each case
rises; the least of them bounds the sum. The case that is the lowest is looked into first: passed over again, or, when
that brings no more, divided by a further variable. So the bound can be had at any time.

The cases of equal layers are alike, so the variable that divides best is found for the first of them: the one that
raises the bound of its likeliest values the most, for as few values as may be.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, log2

import numpy as np

from planner.search.bound.dual import Dual, Floats
from planner.search.exact.eliminate import eliminate
from planner.search.exact.order import find_order

_PASSES = 6
"""Passes at a time."""
_TRIALS = ((3, 24), (9, 8), (24, 2))
"""To find the variable that divides best: passes over the likeliest case of each, and how many are left then."""
_LIKELY = 6
"""Values of those that are left that are tried."""
_BUCKET = 1 << 20
"""A case is solved exactly as soon as no bucket is larger than this."""
_DIGITS = 50
"""Binary digits of a sum that is solved exactly: in whole numbers, which floats hold exactly too."""
_CALL = 4096
"""Entries that are read in the time that a call takes."""
_IDLE = 48
"""After so many divisions by which the bound has not risen it is left as it is."""
_NOTHING = 1e-4
"""A bound that is so near to what is asked for, as a share, is as good."""
_SETTLED = 0.01
"""Passes that close a smaller share of what is missing bring no more."""


@dataclass(slots=True)
class Work:
    """What may still be done."""

    entries: float
    """That passes read."""

    def pays(self, dual: Dual, passes: int) -> bool:
        """Notes down passes; False if there is nothing left to pay them."""
        self.entries -= 2 * passes * sum(_CALL + pair.table.size for pair in dual.pairs)
        return self.entries > 0


@dataclass(slots=True)
class Dividers:
    """Which kind of variable divides a sum best, known for sums that look alike."""

    work: Work
    """To find out."""
    known: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = field(default_factory=dict)
    """By the kinds of a sum's variables, and of those that are decided."""


@dataclass(slots=True)
class _Case:
    """A sum some of whose variables are decided."""

    dual: Dual
    decided: frozenset[int]
    is_settled: bool = False
    """Passes bring no more."""
    is_exact: bool = False
    """The bound is the least of the sum."""


def least_by_cases(
    own: Sequence[Floats],
    pairs: Sequence[tuple[int, int, Floats]],
    cap: float,
    work: Work,
    kinds: Sequence[int],
    dividers: Dividers,
) -> float:
    """Bounds the least of a sum from below.

    Args:
        own: each variable's own cost by value; nothing is negative.
        pairs: tables between two variables, the earlier one first; at most one for any two.
        cap: more than this is not asked for.
        work: how much may be done; what was done is taken from it.
        kinds: of each variable; equal for those that are alike.
        dividers: known from sums before; what is found out is added.

    Returns:
        A bound from 0 to ``cap``.
    """
    waiting: list[tuple[float, int, _Case]] = [(0.0, 0, _Case(Dual(own, pairs), frozenset()))]
    count, risen, idle = 1, 0.0, 0
    while waiting:
        bound, _, case = waiting[0]
        if cap - bound < _NOTHING * cap:
            break
        if bound > risen + _SETTLED * cap:
            risen, idle = bound, 0
        if bound >= cap or case.is_exact or idle == _IDLE or not work.pays(case.dual, _PASSES):
            break
        heapq.heappop(waiting)
        if not case.is_settled:
            cap = min(cap, _pass_over(case, bound, cap))
            cases = [case]
        elif _solve(case, work):
            cases = [case]
        else:
            divider = _divider(case, cap, kinds, dividers)
            cases = [case] if divider is None else _divided(case, divider, work)
            idle += 1
        for one in cases:
            below = max(bound, one.dual.lower)
            if below < cap:
                heapq.heappush(waiting, (below, count, one))
                count += 1
    return max(0.0, min(cap, waiting[0][0] if waiting else cap))


def _pass_over(case: _Case, before: float, cap: float, passes: int = _PASSES) -> float:
    """Some passes, and values are taken out with which nothing is below the cap.

    Returns:
        What an assignment costs that the passes propose: the least of the sum is no more.
    """
    dual = case.dual
    attained = np.inf
    values = sum(map(len, dual.own))
    for _ in range(passes):
        guess = dual.forward()
        dual.backward()
        if dual.lower >= cap:
            return attained
    attained = dual.cost(guess)
    keep = [np.flatnonzero(costs < cap) for costs in dual.at_least()]
    if any(len(values) == 0 for values in keep):
        dual.lower = np.inf
        return attained
    dual.keep(keep)
    gone = 1 - sum(map(len, dual.own)) / values
    case.is_settled = dual.lower - before < _SETTLED * (cap - before) and gone < _SETTLED
    return attained


def _solve(case: _Case, work: Work) -> bool:
    """Finds the least of the sum by elimination, if its tables are small enough."""
    rest = case.dual.rest()
    sizes = [len(costs) for costs in rest.own]
    scopes = [(variable,) for variable in range(len(sizes))] + [(pair.first, pair.second) for pair, _ in rest.pairs]
    free = [tuple(variable for variable in scope if sizes[variable] > 1) for scope in scopes]
    order = find_order(sizes, free, sizes)
    if order.largest_bucket(np.array(sizes)) > _BUCKET:
        return False
    tables = rest.own + [rest.table(number) for number in range(len(rest.pairs))]
    # In parts so small that nothing is lost that matters; rounded down, so that the least of the sum is no higher.
    part = 2.0 ** (ceil(log2(1 + sum(float(table.max()) for table in tables))) - _DIGITS)
    whole = [
        np.floor(table / part).astype(np.int64).reshape([sizes[variable] for variable in scope])
        for table, scope in zip(tables, free, strict=True)
    ]
    solution = eliminate(order, whole, np.arange(len(whole), dtype=np.int64))
    work.entries -= solution.entries
    case.dual.lower = max(case.dual.lower, rest.constant + part * solution.total)
    case.is_exact = True
    return True


def _divider(case: _Case, cap: float, kinds: Sequence[int], dividers: Dividers) -> int | None:
    """The variable to divide a case by; None if no two are joined."""
    costs = case.dual.at_least()
    joined = {variable for pair in case.dual.pairs for variable in (pair.first, pair.second)}
    fewest = sorted(joined, key=lambda variable: (len(costs[variable]), variable))
    if not fewest:
        return None
    looks = (tuple(sorted(kinds)), tuple(sorted(kinds[variable] for variable in case.decided)))
    known = [variable for variable in fewest if kinds[variable] == dividers.known.get(looks)]
    if known:
        return known[0]
    if dividers.work.entries <= 0:
        return fewest[0]
    best = _best_divider(case, fewest, costs, cap, dividers.work)
    dividers.known[looks] = kinds[best]
    return best


def _best_divider(case: _Case, variables: Sequence[int], costs: Sequence[Floats], cap: float, work: Work) -> int:
    """The variable whose values raise the bound the most, for as few of them as may be.

    What a variable gains shows only after many passes, so all are tried with a few, and the best of them with more.

    Args:
        case: to be divided.
        variables: by which it may be, those of the fewest values first.
        costs: by variable and value what an assignment costs at least.
        cap: more than this is not asked for.
        work: to find out.
    """
    before = max(0.0, case.dual.lower)

    def gain(variable: int, value: int, passes: int) -> float:
        one = tried.setdefault((variable, value), _Case(case.dual.case({variable: value}), frozenset()))
        for start in range(0, passes, _PASSES):
            some = min(_PASSES, passes - start)
            if one.is_settled or one.dual.lower >= cap or not work.pays(one.dual, some):
                break
            _pass_over(one, one.dual.lower, cap, some)
        return min(one.dual.lower, cap) - before

    def worth(variable: int, gained: float) -> float:
        # A variable that gains g of n values needs about n ** (cap / g) cases to close what is missing.
        return gained / log2(max(2, len(costs[variable])))

    tried: dict[tuple[int, int], _Case] = {}
    likeliest = {variable: int(costs[variable].argmin()) for variable in variables}
    left = list(variables)
    for passes, most in _TRIALS:
        worths = {variable: worth(variable, gain(variable, likeliest[variable], passes)) for variable in left}
        left = sorted(left, key=lambda variable: (-worths[variable], variables.index(variable)))[:most]
    every = sum(passes for passes, _ in _TRIALS)
    best, most_worth = left[0], -1.0
    for variable in left:
        least = cap - before
        for value in np.argsort(costs[variable], kind="stable")[:_LIKELY].tolist():
            if worth(variable, least) > most_worth:
                least = min(least, gain(variable, value, every))
        if worth(variable, least) > most_worth:
            best, most_worth = variable, worth(variable, least)
    return best


def _divided(case: _Case, variable: int, work: Work) -> list[_Case]:
    """A case for each value of a variable."""
    cases = [
        _Case(case.dual.case({variable: value}), case.decided | {variable})
        for value in range(len(case.dual.own[variable]))
    ]
    for one in cases:
        if work.pays(one.dual, 1):
            one.dual.forward()
            one.dual.backward()
    return cases
