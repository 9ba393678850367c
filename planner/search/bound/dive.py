"""Assignments that a bound leads to once its doubts are settled one by one.

Where passes leave something missing between the bound and the assignment that they propose, they waver between values
that contradict one another. The variable at which most is missing is given the value whose case stays lowest, and so
are those of equal layers at which as much is missing. Passes go on from there, and what they propose then is worth a
look, long before every variable is settled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from planner.search.bound.dual import Dual

_STEPS = 8
"""Variables that are settled; improvement does the rest."""
_WIDTH = 4
"""Values of a variable that are tried."""
_PASSES = 5
"""Over each of these."""
_AS_MUCH = 0.5
"""Of what is missing at a variable, as a share, that counts as as much."""
_NOTHING = 1e-6
"""Less than this share of the bound is missing nowhere that matters."""


def dive(dual: Dual, kinds: Sequence[int], look: Callable[[list[int]], bool], most_idle: int) -> None:
    """Settles variables and shows what passes propose after each.

    Args:
        dual: a bound that passes bring little more to; one more is made.
        kinds: of each variable; equal for those that are alike.
        look: is shown a value for every variable; says whether that led to a better plan.
        most_idle: after so many variables in a row that led to none no more are settled.
    """
    settled: dict[int, int] = {}
    guess = dual.forward()
    idle = 0
    for _ in range(_STEPS):
        missing = dual.missing(guess)
        if missing.max(initial=0.0) <= _NOTHING * abs(dual.lower):
            break
        first = int(missing.argmax())
        alike = [
            variable
            for variable in np.flatnonzero(missing >= _AS_MUCH * missing[first]).tolist()
            if kinds[variable] == kinds[first] and len(dual.own[variable]) == len(dual.own[first])
        ]
        tried = []
        for value in np.argsort(dual.at_least()[first], kind="stable")[:_WIDTH].tolist():
            case = dual.case(dict.fromkeys(alike, value))
            for _ in range(_PASSES):
                proposed = case.forward()
                case.backward()
            tried.append((case.lower, value, case, proposed))
        _, value, dual, guess = min(tried, key=lambda one: one[0])
        settled |= dict.fromkeys(alike, value)
        is_better = look([settled.get(number, value) for number, value in enumerate(guess)])
        idle = 0 if is_better else idle + 1
        if idle == most_idle:
            break
