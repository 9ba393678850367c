"""A plan that fits into the memory there is, and its program."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from planner.algebra.tiling import Tiling
from planner.artifacts.estimate import TimeEstimate
from planner.artifacts.making import Making
from planner.cost.by_op import costed
from planner.cost.priced import PricedTables, payable
from planner.cost.residence import Residence
from planner.cost.tables import CostTables
from planner.errors import InfeasibleError, UsageError
from planner.machine.device_profile import DeviceProfile
from planner.machine.topology_file import Machine
from planner.partition.build import Unplaced, unplaced
from planner.partition.occupancy import tightest
from planner.partition.segments import Partitioned
from planner.partition.workspace import ELEMENTWISE
from planner.planning.limit.exchanged import exchanged, parts_of
from planner.planning.limit.refusal import does_not_fit
from planner.progress import silent
from planner.search.decide import decide
from planner.search.decided import Decided
from planner.search.effort import EXPLORED_PRICES, HIGHEST_PRICE, MOST_TRIALS, WHOLE_OPS
from planner.search.memory.branches import Answer, Budget, Charges, Column, Spans, branched
from planner.search.memory.limit import Fit, Measured, Part, Prices, fit, mixed
from planner.search.memory.nearby import Nearby
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import Rules
from planner.stop import StoppedError
from planner.units import format_bytes

_MOST_SOLVED = 96
"""Plans near those that were found that are searched for at most."""
_UNKNOWN = 1 << 60
"""Stands for a plan's objective where no plan fits yet: larger than any plan's."""
_MOST_OPS_SOLVED = 20_000
"""Ops of all these plans together, about: of a large graph fewer are searched for."""
_MOST_OPS_TRIED = 60_000
"""Ops of all plans that are searched for at prices, about: of a large graph fewer are."""
_TOLERANCE = Fraction(1, 200)
"""The search for a better plan within the limit ends when no plan can be better by more than 0.5%."""
_AMPLE = Fraction(1, 2)
"""Share of the memory there is: a large plan of which less lies there op by op fits. Programs of Mamba-2, DiT-XL and
Llama-3 8B on eight workers were seen to take 1.01 to 1.22 times as much as that."""
_MOST_TIGHTENED = 3
"""How often plans of a large graph are held to less, where the program takes more than what lies there op by op."""
_MOST_MIXED = 3
"""Cheaper plans with which the best one is mixed at most."""


@dataclass(frozen=True)
class Trial:
    """A plan, and its program, which is made when somebody asks for it."""

    decided: Decided
    is_lean: bool = False
    """Its program is a lean one (``partition``)."""
    apart: Sequence[Sequence[float]] = ()
    """How far its workers are from each other (``partition``)."""
    limit_bytes: int = 0
    """The bytes that no worker should take more of: where a worker can do with fewer, buffers are placed again until it
    does."""

    @property
    def making(self) -> Making:
        """How its program is made."""
        return Making(self.is_lean, self.limit_bytes, tuple(map(tuple, self.apart)))

    @cached_property
    def partitioned(self) -> Partitioned:
        """The program."""
        return self._unplaced.placed(limit_bytes=self.limit_bytes)

    @cached_property
    def estimates(self) -> list[tuple[Machine, DeviceProfile | None, TimeEstimate]]:
        """Estimates of the program that were made, by machine and profile (``planner.planning.machines.time_of``)."""
        return []

    @cached_property
    def _unplaced(self) -> Unplaced:
        decided = self.decided
        return unplaced(decided.graph, decided.ops, decided, self.apart, lean=self.is_lean)

    def lacking(self, limits: Sequence[int]) -> int:
        """Bytes that the worker lacks that lacks the most; 0 or less: the plan fits.

        To place buffers well is most of the work of making a program; so it is done only as far as limits ask for it.
        Of a large graph no program is made where what lies there op by op is too much already, or so little that no
        program could take what there is.

        Args:
            limits: the memory there is, one entry for each worker, in any order: who needs more has the larger.
        """
        if judged_by_residence(self.decided):
            held = fullest(self.decided)
            if held > sum(limits):
                return _on_each(held - sum(limits), self.decided)
            if held <= (ample := int(_AMPLE * len(limits) * min(limits))):
                return _on_each(held - ample, self.decided)
        return self.lacking_by_program(limits)

    def lacking_by_program(self, limits: Sequence[int]) -> int:
        """The same, whatever lies there op by op."""
        peaks = self._unplaced.least_peaks
        if (lacking := _lacking(peaks, limits)) <= 0:
            lacking = _lacking(self._unplaced.placed(min(limits), self.limit_bytes).program.peak_bytes, limits)
        return lacking


def judged_by_residence(decided: Decided) -> bool:
    """Whether programs of a graph take so long to make that what lies there op by op says what fits."""
    return len(decided.ops) > WHOLE_OPS


def residence_lacking(trial: Trial, room: int) -> int:
    """Bytes that a worker lacks on average at the fullest op; 0 or less: enough."""
    return _on_each(fullest(trial.decided) - room, trial.decided)


def fullest(decided: Decided) -> int:
    """Bytes that lie on all workers together at the fullest op."""
    return int(Residence(decided.graph, decided.ops).of(decided).max(initial=0))


def _on_each(total: int, decided: Decided) -> int:
    """Bytes of so many that are each worker's, rounded up."""
    return -(-total // prod(decided.cuts))


@dataclass(frozen=True, slots=True)
class Goal:
    """What a plan is to have little of."""

    tables: CostTables
    """Of that, for the search."""
    of: Callable[[Trial], int]
    """The objective of a plan: bytes or picoseconds."""
    highest_price: Fraction
    """The highest price of a byte of memory, in the objective's unit: more than a byte of memory could ever save."""


def least_cost(tables: CostTables) -> Goal:
    """The papers' goal (Tofu, section 5), what moves, and what uneven and repeated work is worth.

    Args:
        tables: of bytes.
    """
    return Goal(tables, lambda trial: trial.decided.cost, HIGHEST_PRICE)


def within(
    first: Trial,
    ask: SearchRequest,
    limits: Sequence[int],
    goal: Goal,
    last_resort: Callable[[Trial], Trial | None] = lambda _: None,
) -> Trial:
    """The plan, if it fits; else the best of those that were found to fit.

    Whether a plan fits is told by its lean program (``partition``); if the other one fits, too, that is taken. Of a
    large graph residence tells it, and one program is made at the end. Where that does not fit, all plans are held to
    as much less as it lacks.

    Prices on memory lead to plans that are stable, and from there improvement finds none that take less; under rules
    that leave fewer plans it can come to others. So what is found where none fits depends on what else may be asked:
    while no plan fits, a plan of the search's own is asked for with ever less replication. The literature's strategies
    are what they are.

    Args:
        first: the best plan without a limit.
        ask: what it was asked for; with tables of bytes.
        limits: the memory there is, one entry for each worker, in any order: who needs more has the larger.
        goal: what a plan is to have little of.
        last_resort: makes a plan fit that does not, or not: asked for the leanest ones where none fits.

    Raises:
        InfeasibleError: no plan that was found fits; with what takes the room.
    """
    if first.lacking(limits) <= 0:
        return first
    search = _Within(first, ask, limits, goal)
    for _ in range(_MOST_TIGHTENED + 1):
        best, ends = search.run()
        lacking = best.plan.lacking_by_program(limits) if best.is_fitting else best.excess_bytes
        if lacking <= 0 or not best.is_fitting:
            break
        ask.progress(f"planning within the limit on memory: the program takes {format_bytes(lacking)} too much")
        search.tighten(lacking)
    if lacking > 0:
        for end in ends:
            resort = last_resort(end)
            if resort is not None:
                return resort
        programs = [end.partitioned.program for end in ends]
        leanest_program = min(programs, key=lambda program: _lacking(program.peak_bytes, limits))
        raise does_not_fit(leanest_program, first.decided.graph, limits, search.least.tolist())
    ask.stop.plan_is_there(is_fitting=True)
    usual = trial_of(best.plan.decided, limit_bytes=min(limits))
    return usual if usual.lacking_by_program(limits) <= 0 else best.plan


class _Within:
    """A search for the cheapest plan within limits.

    Attributes:
        least: what every plan takes at least on all workers together, by op.
    """

    def __init__(self, first: Trial, ask: SearchRequest, limits: Sequence[int], goal: Goal) -> None:
        self._decided, self._ask, self._limits = first.decided, ask, limits
        self._residence = Residence(first.decided.graph, first.decided.ops)
        self._goal = replace(goal, highest_price=payable(goal.highest_price, self._residence, len(limits)))
        self.least = self._residence.least(ELEMENTWISE)
        self._may_fit = int(self.least.max(initial=0)) <= sum(limits)
        self._is_large = judged_by_residence(first.decided)
        self._room = sum(limits)
        """Residence that a plan may have at most."""
        self._most_trials = min(MOST_TRIALS, max(EXPLORED_PRICES, _MOST_OPS_TRIED // len(first.decided.ops)))
        self._is_free = ask.strategy == "tofu"
        self._known: dict[tuple[Tiling, ...], Measured[Trial]] = {}
        self._is_there = ask.stop.has_plan
        """There is a plan that fits, of a large graph as far as residence tells: a search may end with it."""

    def tighten(self, lacking: int) -> None:
        """Holds plans to so many bytes less on each worker."""
        self._room -= lacking * len(self._limits)
        self._is_there = self._ask.stop.has_plan
        self._known = {
            key: replace(one, excess_bytes=self._exceeding(one.residence)) for key, one in self._known.items()
        }

    def run(self) -> tuple[Measured[Trial], list[Trial]]:
        """The best plan; and those that lack the least, if it does not fit."""
        fitting = [one for one in self._known.values() if one.is_fitting]
        if fitting:
            best = min(fitting, key=lambda one: one.objective)
            return best, [best.plan]
        ask, rules = self._ask, self._ask.rules
        leanest = self._measured(trial_of(self._decided, lean=True))
        tried = [self._fitted(leanest, rules)]
        for stricter in rules.with_less_replication() if self._is_free and self._may_fit else ():
            if tried[-1].best.is_fitting:
                break
            ask.progress("planning within the limit on memory: with less replication")
            with contextlib.suppress(InfeasibleError, UsageError):  # other rules may leave no plan at all
                start = self._measured(trial_of(self._planned(stricter, self._goal.tables), ask.tables, lean=True))
                tried.append(_above(leanest, self._fitted(start, stricter)))
        found = min(tried, key=lambda one: max(0, one.best.excess_bytes))
        if found.best.is_fitting:
            try:
                found = replace(found, best=self._closed(found))
            except StoppedError:
                fitting = [one for one in self._known.values() if one.is_fitting]
                found = replace(found, best=min(fitting, key=lambda one: one.objective))
        else:
            found = replace(found, cheaper=(leanest,))
        best = self._branched(found) if self._may_fit else found.best
        return best, [best.plan] if self._is_large else [best.plan, *(end.best.plan for end in tried)]

    def _end_if_due(self) -> None:
        """Ends the search for cheaper plans that fit, where one that fits is known.

        Raises:
            StoppedError: the search is to end.
        """
        if self._is_there and self._ask.stop.leaves_out("cheaper plans within the limit on memory"):
            raise StoppedError

    def _exceeding(self, held: NDArray[np.int64]) -> int:
        return -(-(int(held.max(initial=0)) - self._room) // len(self._limits))

    def _measured(self, trial: Trial) -> Measured[Trial]:
        plan = trial.decided
        key = (*plan.tilings.values(), *(strategy.tiling for strategy in plan.strategies.values()))
        if key not in self._known:
            self._known[key] = self._newly_measured(trial)
        return self._known[key]

    def _newly_measured(self, trial: Trial) -> Measured[Trial]:
        trial = replace(trial, limit_bytes=min(self._limits))
        held = self._residence.of(trial.decided)
        # No program takes less than the residence: where that is too much already, none is made.
        lacking = self._exceeding(held)
        if lacking <= 0 and not self._is_large:
            lacking = trial.lacking(self._limits)
        if lacking <= 0:
            self._is_there = True
            if not self._is_large:
                self._ask.stop.plan_is_there(is_fitting=True)
        return Measured(trial, self._goal.of(trial), held, lacking)

    def _planned(self, rules: Rules, charged: CostTables) -> Decided:
        ask = self._ask
        is_needed = not ask.stop.has_plan
        again = replace(ask, rules=rules, effort="quick", tables=charged, progress=silent, is_needed=is_needed)
        return decide(self._decided.graph, self._decided.ops, again)

    def _fitted(self, start: Measured[Trial], rules: Rules) -> Fit[Trial]:
        ask, tables = self._ask, self._goal.tables
        known = [start.plan.decided]
        nearby: Nearby | None = None

        def found_for(priced: PricedTables) -> Decided:
            nonlocal nearby
            if not self._is_free or len(known) <= EXPLORED_PRICES:
                known.append(self._planned(rules, priced))
                return known[-1]
            if nearby is None:
                nearby = Nearby(known, replace(ask, rules=rules, tables=tables))
            solved = nearby.solve(priced, {})
            assert solved is not None, "a known plan is one of those near it"
            return nearby.plan(solved[0])

        def plan_for(prices: Prices, tilt: Fraction = Fraction(0)) -> Measured[Trial]:
            self._end_if_due()
            ask.progress(f"planning within the limit on memory: memory has a price at {len(prices)} moments")
            priced = PricedTables(tables, self._residence, prices, tilt)
            return self._measured(trial_of(found_for(priced), ask.tables, lean=True))

        return fit(start, plan_for, len(self._limits), self._goal.highest_price, self._most_trials)

    def _closed(self, found: Fit[Trial]) -> Measured[Trial]:
        """Takes what may be taken of plans that are cheaper and do not fit."""
        best, ask = found.best, self._ask
        priced = PricedTables(self._goal.tables, self._residence, found.prices)
        for cheaper in found.cheaper[: 1 if self._is_large else _MOST_MIXED]:
            over, under = cheaper.plan.decided, best.plan.decided
            parts = parts_of(over, under, self._goal.tables, priced)
            if len(parts) < 2:
                continue
            ask.progress(f"mixing a plan that fits with a cheaper one: they differ in {len(parts)} parts")
            measure = self._with_parts(over, under)
            best = min(best, mixed(parts, measure), key=lambda plan: plan.objective)
        return best

    def _with_parts(self, over: Decided, under: Decided) -> Callable[[Sequence[Part[str]]], Measured[Trial]]:
        """Makes and measures the first plan with parts of the second."""

        def with_parts(chosen: Sequence[Part[str]]) -> Measured[Trial]:
            self._end_if_due()
            names = {name for part in chosen for name in part.variables}
            return self._measured(trial_of(_with_cost(exchanged(over, under, names), self._ask.tables), lean=True))

        return with_parts

    def _branched(self, found: Fit[Trial]) -> Measured[Trial]:
        """The best plan near those that were found; the one that lacks the least memory if none fits."""
        best, ask, goal, residence = found.best, self._ask, self._goal, self._residence
        most = min(_MOST_SOLVED, _MOST_OPS_SOLVED // len(self._decided.ops))
        if not found.cheaper or most < 2:
            return best
        plans = [one.plan.decided for one in (best, *found.cheaper)]
        nearby = Nearby(plans, replace(ask, tables=goal.tables))
        workers = prod(plans[0].cuts)

        def column(tilings: tuple[Tiling, ...]) -> Column[tuple[Tiling, ...]]:
            plan = nearby.plan(tilings)
            return Column(tilings, nearby.total(tilings), residence.of(plan), nearby.taken(tilings))

        columns = [column(nearby.tilings(plan)) for plan in plans]
        leanest, solved = columns[0], 0

        def solve(prices: Prices, spans: Spans, charges: Charges) -> Answer[tuple[Tiling, ...]] | None:
            nonlocal leanest, solved
            self._end_if_due()
            solved += 1
            ask.progress(
                f"planning within the limit on memory: branch and bound, search {solved} of {most}",
                cost=best.plan.decided.cost if best.is_fitting else None,
            )
            priced = PricedTables(goal.tables, residence, prices, charges=nearby.charges(charges))
            found = nearby.solve(priced, spans)
            if found is None:
                return None
            one = column(found[0])
            leanest = min(leanest, one, key=lambda known: int(known.residence.max()))
            return Answer(one, Fraction(found[1]))

        def accept(one: Column[tuple[Tiling, ...]]) -> bool:
            nonlocal best
            trial = self._measured(trial_of(_with_cost(nearby.plan(one.plan), ask.tables), lean=True))
            if trial.is_fitting and best.is_fitting:
                best = min(best, trial, key=lambda known: known.objective)
            else:
                best = min(best, trial, key=lambda known: known.excess_bytes)
            return trial.is_fitting

        room = np.full_like(best.residence, best.most_bytes - workers * best.excess_bytes)
        below = columns[0].objective if best.is_fitting else _UNKNOWN
        budget = Budget(most, _TOLERANCE)
        with contextlib.suppress(StoppedError):
            branched(columns, solve, room, nearby.variables(), below, accept, goal.highest_price, budget)
        if not best.is_fitting:
            accept(leanest)
        return best


def _above(first: Measured[Trial], found: Fit[Trial]) -> Fit[Trial]:
    """What was found from another plan than the first one, which does not fit, and may be cheaper than all of these."""
    cheaper = [one for one in (*found.cheaper, first) if one.objective < found.best.objective]
    return replace(found, cheaper=tuple(sorted(cheaper, key=lambda one: -one.objective)))


def _lacking(peaks: Sequence[int], limits: Sequence[int]) -> int:
    worker, limit = tightest(peaks, limits)
    return peaks[worker] - limit


def trial_of(decided: Decided, tables: CostTables | None = None, *, lean: bool = False, limit_bytes: int = 0) -> Trial:
    """A plan with its program.

    Args:
        decided: the plan.
        tables: of bytes, where it was made with tables of something else; then its bytes are counted.
        lean: see ``partition``.
        limit_bytes: see ``Trial``.
    """
    if tables is not None:
        decided = _with_cost(decided, tables)
    return Trial(decided, lean, limit_bytes=limit_bytes)


def _with_cost(decided: Decided, tables: CostTables) -> Decided:
    return replace(costed(decided.graph, decided.ops, decided, tables), certified_gap=None)
