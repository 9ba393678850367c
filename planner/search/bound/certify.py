"""The lower bound of all plans: all cuts together, every tiling of every tensor and op, bounded from below.

The joint problem has tables that are too large to be eliminated exactly on most networks, so

1. variables with few neighbours are eliminated, which is exact and leaves a core;
2. the core is bounded from below by passes (``planner.search.bound.dual``), whose proposals may be better plans. In
   large cores and entangled graphs, and with much effort, they begin on fewer values
   (``planner.search.bound.coarse``), and the cheapest assignment of these is made a plan: of each group one value, by
   passes over the values of these groups alone, and of each variable that or what it is in the best plan known. So is,
   with much effort, the cheapest assignment that each round of passes over all values proposes, though it need be no
   plan;
3. values with which no plan can be better than the best one known are taken out of the core;
4. what is left is eliminated exactly as soon as its tables are small enough. Then the gap is 0;
5. where passes end above it, few variables around the places where the best plan costs more than the bound are
   branched on (``planner.search.bound.regions``).

A bound holds for the search's own problem: these cuts, these candidates, one tiling for what is tied.
"""

from __future__ import annotations

from math import isqrt
from typing import Final, Protocol

import numpy as np

from planner.algebra.tiling import UNCUT, Tiling
from planner.cost.tables import Candidates
from planner.progress import Progress, silent
from planner.search.bound.coarse import begin_coarsely
from planner.search.bound.core import Core, core_entries, rounding_error
from planner.search.bound.regions import raise_in_regions
from planner.search.effort import BOUND_PASSES, CORE_ENTRIES, EXACT_AT_ONCE, NORMAL_BOUND, BoundLimits
from planner.search.exact.choices import Choices
from planner.search.exact.order import find_order
from planner.search.exact.rows import Ints
from planner.search.model.found import Found
from planner.search.model.problem import Problem, Restriction, SearchVariable, no_restriction
from planner.stop import Stop, StoppedError

_WORKERS_OF_LIMITS: Final = 256
"""The number of workers up to which a limit of table entries is what it says; of more workers fewer entries are made.
"""
BOUND = "a bound"
"""The work that is left out where a search ends before it has a bound."""


class Incumbent(Protocol):
    """The best plan known, which takes better ones that a bound comes upon; the bound itself makes none."""

    best: Found

    def look_at(self, tilings: tuple[Tiling, ...]) -> None:
        """Takes an assignment, if it is a plan and better."""

    def join(self, tilings: tuple[Tiling, ...]) -> None:
        """Takes of an assignment what makes the plan better."""


def certify(
    problem: Problem,
    cuts: tuple[int, ...],
    restrict: Restriction,
    incumbent: Incumbent,
    limits: BoundLimits = NORMAL_BOUND,
    progress: Progress = silent,
    stop: Stop | None = None,
) -> int | None:
    """Bounds the cost of all plans.

    Args:
        problem: the graph's variables and tables.
        cuts: the ways of each cut, outermost first.
        restrict: narrows the candidates of a variable.
        incumbent: the best plan known; is told of assignments that may be better ones.
        limits: how much work may be done.
        progress: told what is being done.
        stop: asked between passes, and between parts of the tables, whether the search is to end; None: it is not.

    Returns:
        No plan costs less, the best one that is known in the end included; None if a bound would be more work, or if
        there is none yet where the search is to end.
    """
    stop = Stop() if stop is None else stop
    choices = every_tiling(problem, cuts, restrict, incumbent.best, limits)
    # Above some hundred workers an entry takes time by their number, of whose regions it is a sum.
    most_entries = limits.table_entries * _WORKERS_OF_LIMITS // max(problem.workers, _WORKERS_OF_LIMITS)
    if choices is None or problem.table_entries(choices) > most_entries:
        return None
    sizes = choices.sizes.tolist()
    order = find_order(sizes, problem.scopes, problem.content, most_neighbours=2, most_entries=CORE_ENTRIES)
    entries = core_entries(order, sizes)
    if entries > limits.pair_entries:
        return None
    progress("tables of every tiling, for a bound", cost=incumbent.best.cost)
    try:
        core = Core(problem, choices, order, stop.check)
    except StoppedError:
        stop.leaves_out(BOUND)
        return None
    problem.eliminated_entries += core.eliminated_entries
    dual = core.dual()

    def look_at(values: Ints) -> None:
        incumbent.look_at(core.tilings(values))

    def closed(total: int, values: Ints, lower: int) -> int:
        """The bound where the exact solution is known; its plan may need a strategy that no local op has."""
        look_at(values)
        return max(lower, min(total, incumbent.best.cost))

    lower = 0

    def so_far() -> int:
        """The bound that is known, also where the search is to end."""
        if stop.is_due():
            stop.leaves_out("more rounds of the bound")
        bound = core.constant + _rounded_up(dual.lower) if np.isfinite(dual.lower) else 0
        return min(max(lower, bound), incumbent.best.cost)

    exact = core.solve(EXACT_AT_ONCE)
    if exact is not None:
        return closed(*exact, 0)
    is_coarse = entries > limits.large_entries or problem.decided_apart > 0
    if is_coarse:
        progress("a bound that leaves the order of cuts open", cost=incumbent.best.cost)
        groups, cap = core.without_order(), incumbent.best.cost - core.constant
        chosen = begin_coarsely(dual, groups, cap, limits.coarse_rounds, limits.least_gain, stop)
        group_values = [np.flatnonzero(group == number) for group, number in zip(groups, chosen, strict=True)]
        ordered = dual.among(group_values)
        guesses: list[list[int]] = []
        for _ in range(BOUND_PASSES):
            if stop.is_due():
                return so_far()
            guesses.append([int(values[value]) for values, value in zip(group_values, ordered.forward(), strict=True)])
            ordered.backward()
        incumbent.join(core.tilings(core.original(min(guesses, key=dual.cost))))
    for number in range(limits.rounds if entries <= limits.large_entries else limits.large_rounds):
        progress(f"bounding all plans, round {number + 1}", cost=incumbent.best.cost, lower=max(lower, 0))
        proposed: list[tuple[float, list[int]]] = []
        for _ in range(BOUND_PASSES):
            if stop.is_due():
                return so_far()
            guess = dual.forward()
            proposed.append((dual.cost(guess), guess))
            if core.constant + proposed[-1][0] < incumbent.best.cost - 0.5:
                look_at(core.original(guess))
            dual.backward()
        if limits.joins_rounds:
            incumbent.join(core.tilings(core.original(min(proposed)[1])))
        before, lower = lower, max(lower, core.constant + _rounded_up(dual.lower))
        if lower >= incumbent.best.cost or not core.take_out(dual, incumbent.best):
            return incumbent.best.cost
        try:
            exact = core.solve(limits.exact_entries, stop.check)
        except StoppedError:
            return so_far()
        if exact is not None:
            return closed(*exact, lower)
        missing = incumbent.best.cost - lower
        if lower - before < limits.least_gain * missing or (is_coarse and missing <= limits.enough * lower):
            break
    if incumbent.best.cost - lower > limits.enough * lower:
        progress("bounding all plans, where the best one costs more", cost=incumbent.best.cost, lower=max(lower, 0))
        raise_in_regions(dual, core.values(incumbent.best), incumbent.best.cost - lower, limits, stop)
    return so_far()


def _rounded_up(value: float) -> int:
    """The least integer that a sum of integers can be if it is at least ``value``, rounding errors allowed for."""
    return int(np.ceil(value - rounding_error(value)))


def every_tiling(
    problem: Problem, cuts: tuple[int, ...], restrict: Restriction, best: Found, limits: BoundLimits
) -> Choices | None:
    """Every tiling of every variable, the found plan's among them; None if there are far too many.

    A strategy that is charged more than all of the found plan costs is left out.
    """
    candidates: dict[object, Candidates] = {}
    choices: list[Candidates] = []
    total = 0
    for variable in problem.variables:
        tiling = best.tilings[variable.number]
        key: object = problem.content[variable.number] if restrict is no_restriction else variable.number
        if key not in candidates:
            limit = isqrt(limits.table_entries * (len(candidates) + 1) * 16) - total
            extended = _extended(problem, variable, cuts, restrict, limit)
            if extended is None:
                return None
            extended += _nested(problem, variable, cuts, restrict, limit)
            candidates[key] = problem.affordable(variable, tuple(extended), best.cost)
            total += len(candidates[key])
        values = candidates[key]
        choices.append(values if tiling in values else problem.intern((*values, tiling)))
    return Choices.of(choices)


def _nested(
    problem: Problem, variable: SearchVariable, cuts: tuple[int, ...], restrict: Restriction, limit: int
) -> list[Tiling]:
    """Tilings of a variable whose cuts nest in other orders."""
    offered = problem.spaces[variable.number].nests(cuts, limit)
    if restrict is no_restriction:
        return list(offered)
    return [tiling for tiling in offered if problem.lets_through(restrict, variable, tiling)]


def _extended(
    problem: Problem, variable: SearchVariable, cuts: tuple[int, ...], restrict: Restriction, limit: int
) -> list[Tiling] | None:
    """Every tiling of a variable; None if there are more than ``limit``."""
    tilings = [UNCUT]
    for ways in cuts:
        tilings = [longer for base in tilings for longer in restrict(variable, problem.proposals(variable, base, ways))]
        if len(tilings) > limit:
            return None
    return tilings
