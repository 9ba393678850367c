"""Fusion: improve a plan by solving all cuts together over plans near it.

Recursion decides one cut at a time and cannot take back an earlier one. Fusion offers every variable its present
composite, the same placements in another order of cuts, and every change of a single cut, solves the whole graph
exactly over these candidates, and goes on from the result until nothing gets better. The total never rises.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import factorial, prod

from planner.algebra.tiling import Placement, Tiling
from planner.cost.tables import Candidates
from planner.errors import InfeasibleError
from planner.search.problem import Problem, Restriction, SearchVariable, no_restriction
from planner.search.recurse import Found

MAX_ROUNDS = 20
"""A bound on the rounds; in practice a plan is stable after two or three."""
_MOST_ORDERS = 720
"""Orders of the same placements that are offered: all of up to six cuts; of more, only neighbours are exchanged."""
_MAX_ENTRIES = 1 << 22
"""A bucket larger than this is not worth its time; smaller neighbourhoods are solved instead."""


def improve(
    problem: Problem,
    cuts: tuple[int, ...],
    restrict: Restriction,
    found: Found,
    progress: Callable[[str], None] = lambda line: None,
) -> Found:
    """Improves a plan until it is stable.

    Args:
        problem: the graph's variables and tables.
        cuts: the ways of each cut, outermost first.
        restrict: narrows the candidates of a variable.
        found: the plan to start from.
        progress: told what is being done.

    Returns:
        A plan that moves no more bytes.
    """
    if len(cuts) < 2:
        return found
    near = _Neighbourhood(problem, cuts, restrict)
    best = found
    for number in range(1, MAX_ROUNDS + 1):
        progress(f"improving the plan, round {number}: {best.moved_bytes:,} bytes")
        better = _round(problem, near, len(cuts), best)
        if better.moved_bytes >= best.moved_bytes:
            break
        best = better
    return best


def _round(problem: Problem, near: _Neighbourhood, cuts: int, found: Found) -> Found:
    every = tuple(range(cuts + 1))
    try:
        return _solve(problem, near.of(found, every), found)
    except InfeasibleError:
        pass
    # Too entangled for all at once: one kind of change after the other.
    best = found
    for kind in every:
        with contextlib.suppress(InfeasibleError):  # too entangled even so: the plan stays as it is
            best = _solve(problem, near.of(best, (kind,)), best)
    return best


def _solve(problem: Problem, candidates: Sequence[Candidates], found: Found) -> Found:
    composites, solution = problem.solve(candidates, _MAX_ENTRIES)
    if solution.total >= found.moved_bytes:
        return found
    return replace(
        found,
        composites=composites,
        moved_bytes=solution.total,
        largest_table=max(found.largest_table, solution.largest_table),
    )


def _count(placements: tuple[Placement, ...]) -> int:
    """How many different orders there are."""
    return factorial(len(placements)) // prod(map(factorial, Counter(placements).values()))


def _all_orders(placements: tuple[Placement, ...]) -> Iterator[tuple[Placement, ...]]:
    """Each different order once."""
    if not placements:
        yield ()
    for first in dict.fromkeys(placements):
        place = placements.index(first)
        for rest in _all_orders((*placements[:place], *placements[place + 1 :])):
            yield (first, *rest)


def _near_orders(placements: tuple[Placement, ...]) -> Iterator[tuple[Placement, ...]]:
    """Two neighbours exchanged."""
    for place in range(len(placements) - 1):
        first, second = placements[place : place + 2]
        yield (*placements[:place], second, first, *placements[place + 2 :])


class _Neighbourhood:
    """Candidates near a plan: the present composite first, then changes, of several kinds.

    Kind 0 is another order of the same placements; kind i is another placement at cut i alone.
    """

    def __init__(self, problem: Problem, cuts: tuple[int, ...], restrict: Restriction) -> None:
        self._problem = problem
        self._cuts = cuts
        self._restrict = restrict
        self._known: dict[tuple[object, Tiling, int], Candidates] = {}
        self._joined: dict[tuple[object, Tiling, tuple[int, ...]], Candidates] = {}

    def of(self, found: Found, kinds: tuple[int, ...]) -> list[Candidates]:
        """The candidates of every variable."""
        return [self._candidates(variable, found, kinds) for variable in self._problem.variables]

    def _candidates(self, variable: SearchVariable, found: Found, kinds: tuple[int, ...]) -> Candidates:
        composite = found.composites[variable.number]
        key = (self._problem.content[variable.number], composite, kinds)
        joined = self._joined.get(key)
        if joined is None:
            changes = itertools.chain(*(self._changes(variable, composite, kind) for kind in kinds))
            joined = self._joined[key] = self._problem.intern(tuple(dict.fromkeys((composite, *changes))))
        if self._restrict is no_restriction:
            return joined
        kept = tuple(candidate for candidate in joined[1:] if self._is_allowed(variable, candidate))
        return self._problem.intern((composite, *kept))

    def _changes(self, variable: SearchVariable, composite: Tiling, kind: int) -> Candidates:
        key = (self._problem.content[variable.number], composite, kind)
        known = self._known.get(key)
        if known is None:
            make = self._orders(composite) if kind == 0 else self._other_placements(variable, composite, kind - 1)
            known = self._known[key] = tuple(option for option in make if self._can_be(variable, option))
        return known

    def _orders(self, composite: Tiling) -> list[Tiling]:
        placements = composite.placements
        orders = _all_orders(placements) if _count(placements) <= _MOST_ORDERS else _near_orders(placements)
        return [Tiling(order, self._cuts) for order in dict.fromkeys(orders) if order != placements]

    def _other_placements(self, variable: SearchVariable, composite: Tiling, cut: int) -> list[Tiling]:
        prefixes = (Tiling(composite.placements[:cut], self._cuts[:cut]), Tiling((), ()))
        options = dict.fromkeys(
            option.placements[-1]
            for prefix in prefixes
            for option in self._problem.proposals(variable, prefix, self._cuts[cut])
        )
        outer, inner = composite.placements[:cut], composite.placements[cut + 1 :]
        return [
            Tiling((*outer, placement, *inner), self._cuts)
            for placement in options
            if placement != composite.placements[cut]
        ]

    def _can_be(self, variable: SearchVariable, composite: Tiling) -> bool:
        """True if the composite can be built cut by cut."""
        prefix = Tiling((), ())
        for placement, ways in zip(composite.placements, self._cuts, strict=True):
            options = self._problem.proposals(variable, prefix, ways)
            prefix = prefix.extend(placement, ways)
            if prefix not in options:
                return False
        return True

    def _is_allowed(self, variable: SearchVariable, composite: Tiling) -> bool:
        """True if the restriction lets the composite through at every cut."""
        for depth in range(1, len(self._cuts) + 1):
            prefix = Tiling(composite.placements[: depth - 1], self._cuts[: depth - 1])
            options = self._restrict(variable, self._problem.proposals(variable, prefix, self._cuts[depth - 1]))
            if Tiling(composite.placements[:depth], self._cuts[:depth]) not in options:
                return False
        return True
