"""How good a plan can be: all cuts together, every composite of every tensor and op, bounded from below.

The joint problem has tables that are too large to be eliminated exactly on most networks, so

1. variables with few neighbours are eliminated, which is exact and leaves a core;
2. the core is bounded from below, at first with the order of cuts left open (``planner.search.coarse``), and plans are
   read off the bound's passes (``planner.search.dual``) or found by settling its doubts (``planner.search.dive``);
3. values with which no plan can be better than the best one known are taken out of the core;
4. what is left is eliminated exactly as soon as its tables are small enough. Then the gap is 0.

A bound holds for the search's own problem: these cuts, these candidates, one tiling for what is tied, and, where
repeated work has a price, plans within its budget. All tables have that price in them then, and whatever is compared
with them what the whole budget costs (``planner.search.work_prices``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from planner.algebra.tiling import UNCUT, Tiling
from planner.cost.tables import Candidates
from planner.search.blocks import bound_by_blocks
from planner.search.cases import Dividers, Work
from planner.search.choices import Choices
from planner.search.coarse import Groups, begin_coarsely
from planner.search.dive import dive
from planner.search.dual import Dual, Floats
from planner.search.effort import EFFORTS, Effort
from planner.search.eliminate import KnownTables, Reduced, Table, eliminate
from planner.search.improve import improve
from planner.search.order import Ints, Order, find_order
from planner.search.problem import Problem, Restriction, SearchVariable, no_restriction
from planner.search.recurse import Found
from planner.search.work_prices import FREE, Price

_BUCKET = 1 << 24
"""Step 1 makes no bucket larger than this."""
_NEAR = 1 << 21
"""The same where only the values near the bound are solved exactly, to find a better plan."""
_HALVINGS = 8
"""How often the values near the bound are made fewer until they can be solved exactly."""
_PASSES = 10
"""Passes between two attempts to take values out."""
_WORTHWHILE = 1.1
"""An assignment that costs so many times the best plan is not worth improving."""
_ERRORS = (1e-9, 1e-3)
"""By how much sums of floats may be off that stand for integers: as a share of their size, and besides."""


@dataclass(frozen=True, slots=True)
class Bounded:
    """A plan whose bound is known."""

    found: Found
    overdrawn: Found | None = None
    """A plan that moves less and repeats more than allowed."""
    is_early: bool = False
    """The bound would have risen: the price was to be sought anew first."""


def certify(
    problem: Problem,
    cuts: tuple[int, ...],
    restrict: Restriction,
    found: Found,
    effort: Effort = EFFORTS["normal"],
    progress: Callable[[str], None] = lambda line: None,
    price: Price = FREE,
    *,
    may_reprice: bool = False,
) -> Bounded:
    """Bounds what a plan can be, and improves the given one where it can be better.

    Args:
        problem: the graph's variables and tables.
        cuts: the ways of each cut, outermost first.
        restrict: narrows the candidates of a variable.
        found: the best plan known.
        effort: how much work may be done.
        progress: told what is being done.
        price: of repeated work; any will do for plans within the budget, and some bound them better than others.
        may_reprice: end early where settling doubts has led to a plan that overdraws: another price would do better.

    Returns:
        The best plan now known and its bound; the given one, without a bound, if that is more than the effort. And the
        best of the plans that were seen to move less, but repeat more than allowed.
    """
    spare = 0 if problem.overdraws(found.composites) else price.of_budget(problem)
    charged = price.priced(problem) if spare else problem
    choices = _composites(problem, cuts, restrict, found, effort)
    if choices is None or problem.table_entries(choices) > effort.table_entries:
        return Bounded(found)
    sizes = choices.sizes.tolist()
    order = find_order(sizes, problem.scopes, problem.content, most_neighbours=2, most_entries=_BUCKET)
    if _core_entries(order, sizes) > effort.pair_entries:
        return Bounded(found)
    progress("tables of all cuts together")
    joint = _Joint(charged, choices, order, effort)
    problem.eliminated_entries += joint.eliminated_entries
    seen = _Seen(problem, charged, joint, found)
    dives, dived = effort.dives, -1
    dual = joint.dual()
    progress("a bound that leaves the order of cuts open")
    begin_coarsely(dual, joint.without_order(), found.moved_bytes + spare - joint.constant)
    dividers = Dividers(Work(0.0))
    lower, by_cases = 0, False
    for number in range(effort.rounds + 2 * effort.case_rounds):
        progress(f"bounding the plan, round {number + 1}: {seen.best.moved_bytes:,} bytes, at least {max(lower, 0):,}")
        if by_cases:
            bound, costs = joint.bound_by_blocks(dual, seen.best, effort.case_entries, dividers)
        else:
            for _ in range(_PASSES):
                guess = dual.forward()
                if joint.constant + dual.cost(guess) < seen.best.moved_bytes + spare - 0.5:
                    seen.look_at(joint.original(guess))
                dual.backward()
            bound, costs = dual.lower, dual.at_least()
        before, lower = lower, max(lower, joint.constant + _rounded_up(bound) - spare)
        if dives and not by_cases and lower < seen.best.moved_bytes != dived:
            dives, dived = dives - 1, seen.best.moved_bytes
            progress(f"settling doubts of the bound: {seen.best.moved_bytes:,} bytes, at least {max(lower, 0):,}")
            dive(dual, joint.kinds, lambda guess: seen.improve(joint.original(guess), cuts, restrict))
            if may_reprice and seen.overdrawn is not None:
                return replace(seen.bounded(lower), is_early=True)
        if lower >= seen.best.moved_bytes or not joint.take_out(dual, costs, seen.best, spare):
            return seen.bounded(seen.best.moved_bytes)
        exact = joint.solve()
        if exact is not None:
            total, values = exact
            seen.look_at(values)
            # A plan of the exact solution may need a strategy that no local op computes, or repeat too much.
            return seen.bounded(max(lower, min(total - spare, seen.best.moved_bytes)))
        near = joint.solve_near(dual, seen.best, spare) if number.bit_count() <= 1 else None
        if near is not None and near[0] < seen.best.moved_bytes + spare:
            seen.look_at(near[1])
        is_little = lower - before < effort.least_gain * (seen.best.moved_bytes - lower)
        if by_cases and is_little:
            break
        by_cases = not by_cases and (is_little or number + 1 >= effort.rounds)
    return seen.bounded(lower)


def _rounded_up(value: float) -> int:
    """The least integer that a sum of integers can be if it is at least ``value``, rounding errors allowed for."""
    return int(np.ceil(value - _error(value)))


def _error(value: float) -> float:
    """By how much a sum of about this size may be off."""
    relative, absolute = _ERRORS
    return relative * abs(value) + absolute


def _composites(
    problem: Problem, cuts: tuple[int, ...], restrict: Restriction, found: Found, effort: Effort
) -> Choices | None:
    """Every composite of every variable, the found plan's among them; None if there are far too many."""
    known: dict[object, Candidates] = {}
    choices: list[Candidates] = []
    total = 0
    for variable in problem.variables:
        own = found.composites[variable.number]
        key: object = problem.content[variable.number] if restrict is no_restriction else variable.number
        if key not in known:
            most = isqrt(effort.table_entries * (len(known) + 1) * 16) - total
            extended = _extended(problem, variable, cuts, restrict, most)
            if extended is None:
                return None
            known[key] = problem.intern(tuple(extended))
            total += len(known[key])
        values = known[key]
        choices.append(values if own in values else problem.intern((*values, own)))
    return Choices.of(choices)


def _extended(
    problem: Problem, variable: SearchVariable, cuts: tuple[int, ...], restrict: Restriction, most: int
) -> list[Tiling] | None:
    """Every composite of a variable; None if there are more than ``most``."""
    found = [UNCUT]
    for ways in cuts:
        found = [longer for prefix in found for longer in restrict(variable, problem.proposals(variable, prefix, ways))]
        if len(found) > most:
            return None
    return found


class _Seen:
    """The plans that the bound's passes come upon."""

    def __init__(self, problem: Problem, charged: Problem, joint: _Joint, found: Found) -> None:
        self._problem = problem
        self._charged = charged
        self._joint = joint
        self.best = found
        """Within the budget, as the first one is, or no plan is known that is."""
        self.overdrawn: Found | None = None
        """The best of those that move less than that and repeat more than allowed."""

    def look_at(self, values: Ints) -> None:
        """Notes the plan of an assignment, if it is one and the best of its kind."""
        composites = self._joint.composites(values)
        if self._problem.are_local(composites):
            self._note(composites)

    def improve(self, values: Ints, cuts: tuple[int, ...], restrict: Restriction) -> None:
        """Notes what improvement makes of the plan of an assignment, if that is one and not far too dear."""
        composites = self._joint.composites(values)
        costs = self._charged.total_bytes(composites)
        best = self._charged.total_bytes(self.best.composites)
        if costs <= _WORTHWHILE * best and self._problem.are_local(composites):
            start = replace(self.best, composites=composites, moved_bytes=costs)
            self._note(improve(self._charged, cuts, restrict, start).composites)

    def _note(self, composites: tuple[Tiling, ...]) -> None:
        moved = self._problem.total_bytes(composites)
        if moved >= self.best.moved_bytes:
            return
        found = replace(self.best, composites=composites, moved_bytes=moved)
        if not self._problem.overdraws(composites) or self._problem.overdraws(self.best.composites):
            self.best = found
            if self.overdrawn is not None and self.overdrawn.moved_bytes >= moved:
                self.overdrawn = None
        elif self.overdrawn is None or moved < self.overdrawn.moved_bytes:
            self.overdrawn = found

    def bounded(self, lower: int) -> Bounded:
        """What is known in the end."""
        return Bounded(replace(self.best, lower_bytes=lower), self.overdrawn)


def _core_entries(order: Order, sizes: Sequence[int]) -> int:
    """Entries that one pass over the core reads, known before any table is made."""
    pairs = {tuple(sorted(scope)) for _, scope in order.open if len(scope) == 2}
    return sum(sizes[first] * sizes[second] for first, second in pairs)


class _Joint:
    """The joint problem, its variables of few neighbours eliminated."""

    def __init__(self, problem: Problem, choices: Choices, order: Order, effort: Effort) -> None:
        self._choices = choices
        self._exact_entries = effort.exact_entries
        sizes = choices.sizes.tolist()
        known = KnownTables()
        self._reduced = Reduced(order, known, *known.interned(*problem.joint_tables(choices)))
        self.constant = self._reduced.constant
        self.eliminated_entries = self._reduced.entries
        self._core = sorted(order.core, key=problem.times.__getitem__)
        self.kinds = [problem.content[variable] for variable in self._core]
        """Of the core's variables; equal for those that are alike."""
        number = {variable: position for position, variable in enumerate(self._core)}
        self._kept: list[NDArray[np.int64]] = [np.arange(sizes[variable]) for variable in self._core]
        self._own: list[Table] = [np.zeros(sizes[variable], dtype=np.int64) for variable in self._core]
        self._pairs: dict[tuple[int, int], Table] = {}
        shared: dict[tuple[tuple[int, bool], ...], Table] = {}
        between: dict[tuple[int, int], list[tuple[int, bool]]] = {}
        for factor, scope in order.open:
            places = tuple(number[variable] for variable in scope)
            if len(places) == 1:
                self._own[places[0]] = self._own[places[0]] + self._reduced.table(factor)
            else:
                turned = places[0] > places[1]
                between.setdefault((min(places), max(places)), []).append((factor, turned))
        for pair, factors in between.items():
            key = tuple(sorted((id(self._reduced.table(factor)), turned) for factor, turned in factors))
            if key not in shared:
                parts = [self._reduced.table(factor) for factor, _ in factors]
                turned_parts = [part.T if turned else part for part, (_, turned) in zip(parts, factors, strict=True)]
                shared[key] = np.ascontiguousarray(sum(turned_parts[1:], turned_parts[0]))
            self._pairs[pair] = shared[key]

    def dual(self) -> Dual:
        """The bound of the core, not yet passed over."""
        floats: dict[int, Floats] = {}
        pairs = [
            (first, second, floats.setdefault(id(table), table.astype(np.float64)))
            for (first, second), table in self._pairs.items()
        ]
        return Dual([costs.astype(np.float64) for costs in self._own], pairs)

    def without_order(self) -> list[Groups]:
        """By variable of the core, which of its values are the same but for the order of cuts."""
        known: dict[int, Groups] = {}
        for variable in self._core:
            candidates = self._choices[variable]
            if id(candidates) not in known:
                numbers: dict[object, int] = {}
                each = (Counter(zip(one.placements, one.ways, strict=True)) for one in candidates)
                which = [numbers.setdefault(frozenset(counts.items()), len(numbers)) for counts in each]
                known[id(candidates)] = np.array(which, dtype=np.int64)
        return [known[id(self._choices[variable])] for variable in self._core]

    def original(self, values: Sequence[int]) -> Ints:
        """The values of all variables, when those of the core have these (positions among the kept)."""
        return self._original(self._kept, values)

    def _original(self, kept: Sequence[NDArray[np.int64]], values: Sequence[int]) -> Ints:
        found = np.zeros(len(self._choices), dtype=np.int64)
        for variable, own, value in zip(self._core, kept, values, strict=True):
            found[variable] = own[value]
        self._reduced.complete(found)
        return found

    def composites(self, values: Ints) -> tuple[Tiling, ...]:
        """The candidates that values stand for."""
        return self._choices.chosen(values)

    def values(self, best: Found) -> list[int]:
        """The values of the core's variables in the best plan known (positions among the kept, where it always is)."""
        found = []
        for variable, kept in zip(self._core, self._kept, strict=True):
            value = self._choices[variable].index(best.composites[variable])
            found.append(int(np.searchsorted(kept, value)))
        return found

    def bound_by_blocks(
        self, dual: Dual, best: Found, entries: float, dividers: Dividers
    ) -> tuple[float, Sequence[Floats]]:
        """A bound of the core, and what an assignment with a value costs at least; see ``planner.search.blocks``."""
        blocks = bound_by_blocks(dual.rest(), self.values(best), self.kinds, entries, dividers)
        return blocks.lower, blocks.at_least

    def take_out(self, dual: Dual, costs: Sequence[Floats], best: Found, spare: int) -> bool:
        """Takes out values with which nothing can be better than the best plan known, but for that plan's own.

        Args:
            dual: the bound, over the values that are left.
            costs: for every variable and value what an assignment with that value costs at least.
            best: the best plan known.
            spare: what a plan may cost beside its bytes.

        Returns:
            False if no plan can be better.
        """
        limit = best.moved_bytes + spare - self.constant - 1 + _error(dual.lower)
        if any(float(own.min()) > limit for own in costs):
            return False
        keep = []
        for own, value in zip(costs, self.values(best), strict=True):
            is_kept = own <= limit
            is_kept[value] = True
            keep.append(np.flatnonzero(is_kept))
        dual.keep(keep)
        self._kept = [kept[values] for kept, values in zip(self._kept, keep, strict=True)]
        return True

    def solve(self) -> tuple[int, Ints] | None:
        """The exact minimum over the values that are left, and where it is; None if its tables are too large."""
        return self._solve(self._kept, self._exact_entries)

    def solve_near(self, dual: Dual, best: Found, spare: int) -> tuple[int, Ints] | None:
        """The exact minimum over the values that the bound thinks best, as many as can be solved.

        Args:
            dual: the bound, over the values that are left.
            best: the best plan known.
            spare: what a plan may cost beside its bytes.
        """
        costs = dual.at_least()
        least = min((float(cost.min()) for cost in costs), default=0.0)
        room = best.moved_bytes + spare - self.constant - least
        for halvings in range(1, _HALVINGS + 1):
            limit = least + room / 2**halvings
            kept = [
                values[(cost <= limit) | (cost == cost.min())] for values, cost in zip(self._kept, costs, strict=True)
            ]
            found = self._solve(kept, _NEAR)
            if found is not None:
                return found
        return None

    def _solve(self, kept: Sequence[NDArray[np.int64]], most_entries: int) -> tuple[int, Ints] | None:
        sizes = [len(values) for values in kept]
        pairs = list(self._pairs)
        scopes = [(place,) for place in range(len(sizes))] + pairs
        free = [tuple(place for place in scope if sizes[place] > 1) for scope in scopes]
        order = find_order(sizes, free, sizes)
        if order.largest_bucket(np.array(sizes)) > most_entries:
            return None
        tables = [costs[values] for costs, values in zip(self._own, kept, strict=True)]
        tables += [self._pairs[pair][np.ix_(kept[pair[0]], kept[pair[1]])] for pair in pairs]
        squeezed = [table.reshape([sizes[place] for place in scope]) for table, scope in zip(tables, free, strict=True)]
        solution = eliminate(order, squeezed, np.arange(len(squeezed), dtype=np.int64))
        return self.constant + solution.total, self._original(kept, solution.values.tolist())
