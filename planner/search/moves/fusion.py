"""Fusion: improve a plan by solving all cuts together over plans near it.

Recursion decides one cut at a time and cannot take back an earlier one. Fusion offers every variable its present
tiling, the same placements in another order of cuts (over more than six cuts, with two neighbours exchanged), and
every change of a single cut, solves the whole graph exactly over these candidates, and goes on from the result until
nothing gets better. Where they are too entangled for that, it offers one kind of change after the other; in a graph
whose single cuts are too entangled already, then all of them while few variables stay what they are. The total never
rises.

The candidates of a matrix on four workers, two cuts of 2, whose tiling is ``S(0)/2 S(1)/2`` (``Neighbourhood``). Each
box has the numbers of the workers that own it::

    present          kind 0: order    kind 1: the outer cut             kind 2: the inner cut
    S(0)/2 S(1)/2    S(1)/2 S(0)/2    S(1)/2 S(1)/2    R/2 S(1)/2       S(0)/2 S(0)/2    S(0)/2 R/2
    +-----+-----+    +-----+-----+    +--+--+--+--+    +-----+-----+    +-----------+    +-----------+
    |  0  |  1  |    |  0  |  2  |    |  |  |  |  |    |     |     |    |     0     |    |   0   1   |
    |     |     |    |     |     |    |  |  |  |  |    |     |     |    +-----------+    |           |
    |     |     |    |     |     |    |  |  |  |  |    |     |     |    |     1     |    |           |
    +-----+-----+    +-----+-----+    |0 |1 |2 |3 |    | 0 2 | 1 3 |    +-----------+    +-----------+
    |  2  |  3  |    |  1  |  3  |    |  |  |  |  |    |     |     |    |     2     |    |   2   3   |
    |     |     |    |     |     |    |  |  |  |  |    |     |     |    +-----------+    |           |
    |     |     |    |     |     |    |  |  |  |  |    |     |     |    |     3     |    |           |
    +-----+-----+    +-----+-----+    +--+--+--+--+    +-----+-----+    +-----------+    +-----------+

    >>> for text in ("S(0)/2 S(1)/2", "S(1)/2 S(0)/2", "R/2 S(1)/2"):
    ...     print(*Tiling.parse(text, (2, 2)).boxes((4, 4)))
    [0:2, 0:2] [0:2, 2:4] [2:4, 0:2] [2:4, 2:4]
    [0:2, 0:2] [2:4, 0:2] [0:2, 2:4] [2:4, 2:4]
    [0:4, 0:2] [0:4, 2:4] [0:4, 0:2] [0:4, 2:4]

All variables have such lists at once, and elimination takes the cheapest assignment of them: one tensor may change its
order while its reader changes its inner cut. The result is the present plan of the next round.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import factorial

from planner.algebra.tiling import UNCUT, Placement, Tiling
from planner.cost.tables import Candidates
from planner.errors import InfeasibleError
from planner.progress import Progress, silent
from planner.search.effort import ENTANGLED_GAIN, FUSION_ORDERS, FUSION_ROUNDS, MOVE_ENTRIES, PART_ENTRIES
from planner.search.exact.choices import Choices
from planner.search.model.found import Found
from planner.search.model.problem import Problem, Restriction, SearchVariable, no_restriction
from planner.search.model.space import Space
from planner.search.moves.entangled import solved_in_parts
from planner.stop import Stop, StoppedError


def improve(
    problem: Problem,
    cuts: tuple[int, ...],
    restrict: Restriction,
    plan: Found,
    progress: Progress = silent,
    stop: Stop | None = None,
) -> Found:
    """Improves a plan until it is stable.

    Args:
        problem: the graph's variables and tables.
        cuts: the ways of each cut, outermost first.
        restrict: narrows the candidates of a variable.
        plan: the plan to start from.
        progress: told what is being done.
        stop: asked between rounds whether the search is to end; None: it is not.

    Returns:
        A plan that costs no more.
    """
    if len(cuts) < 2:
        return plan
    near = Neighbourhood(problem, cuts, restrict)
    # Cuts that nest in another order come last: so they never lead to a plan that costs more than one without them.
    plain = _stable(problem, near, near.kinds, plan, progress, stop)
    if not near.can_nest(plain):
        return plain
    nested = _stable(problem, near, (near.nesting,), plain, progress, stop)
    saved = plain.cost - nested.cost
    if nested is plain or (problem.decided_apart and saved <= ENTANGLED_GAIN * plain.cost):
        return nested
    return _stable(problem, near, (*near.kinds, near.nesting), nested, progress, stop)


def _stable(
    problem: Problem, near: Neighbourhood, kinds: tuple[int, ...], plan: Found, progress: Progress, stop: Stop | None
) -> Found:
    """Improves a plan by changes of these kinds until none makes it better."""
    # A graph whose cuts can be solved exactly gains little in parts, for a third of the time.
    best, gains = plan, problem.decided_apart > 0
    for _ in range(FUSION_ROUNDS):
        if _ends(stop):
            break
        progress("improving a plan", cost=best.cost)
        choices = near.of(best, kinds)
        try:
            better = _solved(problem, choices, best, stop)
        except StoppedError:
            break
        except InfeasibleError:  # too entangled for all at once
            better = _one_by_one(problem, near, kinds, best, progress, stop)
            if better is best and gains:
                better = in_parts(problem, choices, best, stop)
                gains = best.cost - better.cost > ENTANGLED_GAIN * best.cost
        if better is best:
            break
        best = better
    return best


def joined(problem: Problem, plan: Found, tilings: Sequence[Tiling], stop: Stop | None) -> Found:
    """The best plan in which each variable is what it is in one of two; the same object if that is the first.

    Args:
        problem: the graph's variables and tables.
        plan: the plan.
        tilings: the other one, which need be no plan.
        stop: asked between parts of the work whether the search is to end; None: it is not.
    """
    pairs = zip(plan.tilings, tilings, strict=True)
    choices = Choices.of([problem.intern((first,) if first == second else (first, second)) for first, second in pairs])
    try:
        return _solved(problem, choices, plan, stop)
    except StoppedError:
        return plan
    except InfeasibleError:
        return in_parts(problem, choices, plan, stop)


def in_parts(problem: Problem, choices: Choices, plan: Found, stop: Stop | None) -> Found:
    """A better plan of the choices, where they are too entangled; the same object as ``plan`` if there is none.

    Args:
        problem: the graph's variables and tables.
        choices: each variable's candidates, those of the plan among them.
        plan: the plan.
        stop: asked between parts of the work whether the search is to end; None: it is not.
    """
    entries = min(MOVE_ENTRIES, PART_ENTRIES)
    try:
        tilings, solution, _ = solved_in_parts(problem, choices, plan.tilings, plan.cost, entries, _check(stop))
    except StoppedError:
        return plan
    if solution is None:
        return plan
    largest = max(plan.largest_table, solution.largest_table)
    return replace(plan, tilings=tilings, cost=solution.total, largest_table=largest)


def _ends(stop: Stop | None) -> bool:
    return stop is not None and stop.leaves_out("improving a plan")


def _check(stop: Stop | None) -> Callable[[], None]:
    """The check between parts of the work, which raises ``StoppedError`` where the search is to end."""

    def check() -> None:
        if _ends(stop):
            raise StoppedError

    return check


def _one_by_one(
    problem: Problem, near: Neighbourhood, kinds: tuple[int, ...], plan: Found, progress: Progress, stop: Stop | None
) -> Found:
    """One kind of change after the other, until none makes the plan better.

    What a kind of change leads to it cannot make better, and need not be asked again before another has.
    """
    best = plan
    settled = 0
    for kind in itertools.islice(itertools.cycle(kinds), FUSION_ROUNDS * len(kinds)):
        if _ends(stop):
            break
        progress("improving a plan", cost=best.cost)
        try:
            better = _better(problem, near, kind, best, stop)
        except StoppedError:
            break
        if better is best:
            settled += 1
        else:
            settled = 1 if near.is_closed(kind) else 0
        if settled == len(kinds):
            break
        best = better
    return best


def _better(problem: Problem, near: Neighbourhood, kind: int, plan: Found, stop: Stop | None) -> Found:
    """The best plan with changes of one kind; the same object if none is better, or if they are too entangled."""
    with contextlib.suppress(InfeasibleError):
        return _solved(problem, near.of(plan, (kind,)), plan, stop)
    return plan


def _solved(problem: Problem, choices: Choices, plan: Found, stop: Stop | None) -> Found:
    """The best plan of the choices; the same object as ``plan`` if none is better.

    Raises:
        StoppedError: the search is to end, and what is left out is noted.
    """
    tilings, solution = problem.solve(choices, MOVE_ENTRIES, _check(stop))
    if solution.total >= plan.cost:
        return plan
    largest = max(plan.largest_table, solution.largest_table)
    return replace(plan, tilings=tilings, cost=solution.total, largest_table=largest)


def _all_orders(placements: tuple[Placement, ...]) -> Iterator[tuple[Placement, ...]]:
    """The different orders of placements, each once."""
    if not placements:
        yield ()
    for first in dict.fromkeys(placements):
        place = placements.index(first)
        for tail in _all_orders((*placements[:place], *placements[place + 1 :])):
            yield (first, *tail)


def _near_orders(placements: tuple[Placement, ...]) -> Iterator[tuple[Placement, ...]]:
    """Two neighbours exchanged."""
    for place in range(len(placements) - 1):
        first, second = placements[place : place + 2]
        yield (*placements[:place], second, first, *placements[place + 2 :])


class Neighbourhood:
    """Candidates near a plan: the present tiling first, then changes, of several kinds.

    Kind 0 is another order of the same placements; kind i is another placement at cut i alone. One more kind,
    ``nesting``, is the same placements nested in other orders, where that is offered.
    """

    def __init__(self, problem: Problem, cuts: tuple[int, ...], restrict: Restriction) -> None:
        self._problem = problem
        self._cuts = cuts
        self._restrict = restrict
        self.kinds = tuple(range(len(cuts) + 1))
        self.nesting = len(cuts) + 1
        self._offers: dict[tuple[Space, Tiling, int], Candidates] = {}
        self._joined: dict[tuple[Space, Tiling, tuple[int, ...]], Candidates] = {}
        self._let_through: dict[tuple[int, Tiling], bool] = {}

    def can_nest(self, plan: Found) -> bool:
        """True if some variable is offered its placements nested in another order."""
        spaces = dict.fromkeys(zip(self._problem.spaces, plan.tilings, strict=True))
        return any(space.nests_near(tiling) for space, tiling in spaces)

    def is_closed(self, kind: int) -> bool:
        """True if changes of this kind lead from each plan to all that they lead to one after the other."""
        return 0 < kind < self.nesting or (kind == 0 and factorial(len(self._cuts)) <= FUSION_ORDERS)

    def of(self, plan: Found, kinds: tuple[int, ...]) -> Choices:
        """The candidates of every variable."""
        choices = self._problem.choices(plan.tilings, partial(self._offered, kinds=kinds))
        if self._restrict is no_restriction:
            return choices
        return Choices.of(
            [
                self._problem.intern(tuple(self._allowed(variable, choices[variable.number])))
                for variable in self._problem.variables
            ]
        )

    def _offered(self, variable: SearchVariable, tiling: Tiling, kinds: tuple[int, ...]) -> Candidates:
        key = (self._problem.spaces[variable.number], tiling, kinds)
        joined = self._joined.get(key)
        if joined is None:
            changes = itertools.chain(*(self._changes(variable, tiling, kind) for kind in kinds))
            joined = self._joined[key] = self._problem.intern(tuple(dict.fromkeys((tiling, *changes))))
        return joined

    def _allowed(self, variable: SearchVariable, offered: Candidates) -> Iterator[Tiling]:
        """The present tiling, and the changes that the restriction lets through."""
        yield offered[0]
        yield from (candidate for candidate in offered[1:] if self._is_allowed(variable, candidate))

    def _changes(self, variable: SearchVariable, tiling: Tiling, kind: int) -> Candidates:
        space = self._problem.spaces[variable.number]
        key = (space, tiling, kind)
        offer = self._offers.get(key)
        if offer is None:
            if kind == self.nesting:
                make: Iterable[Tiling] = space.nests_near(tiling)
            else:
                make = self._orders(tiling) if kind == 0 else self._other_placements(variable, tiling, kind - 1)
            offer = self._offers[key] = tuple([option for option in map(space.settled, make) if space.can_be(option)])
        return offer

    def _orders(self, tiling: Tiling) -> list[Tiling]:
        placements = tiling.placements
        orders = _all_orders(placements) if self.is_closed(0) else _near_orders(placements)
        return [Tiling(order, self._cuts).settled for order in dict.fromkeys(orders) if order != placements]

    def _other_placements(self, variable: SearchVariable, tiling: Tiling, cut: int) -> list[Tiling]:
        prefixes = (tiling.outermost(cut), UNCUT)
        options = dict.fromkeys(
            option.placements[-1]
            for prefix in prefixes
            for option in self._problem.proposals(variable, prefix, self._cuts[cut])
        )
        outer, inner = tiling.placements[:cut], tiling.placements[cut + 1 :]
        return [
            Tiling((*outer, placement, *inner), self._cuts).settled
            for placement in options
            if placement != tiling.placements[cut]
        ]

    def _is_allowed(self, variable: SearchVariable, tiling: Tiling) -> bool:
        """True if the restriction lets the tiling through at every cut."""
        key = (variable.number, tiling)
        verdict = self._let_through.get(key)
        if verdict is None:
            verdict = self._let_through[key] = self._problem.lets_through(self._restrict, variable, tiling)
        return verdict
