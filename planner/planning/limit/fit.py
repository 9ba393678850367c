"""A plan that fits into the memory there is: what is tried, in this order, until something fits.

1. The plan without a limit as it is; then, up to 2,000 ops, with some of its ops in steps, which moves no byte more.
   A strategy that looks at memory is asked again (``distcnn``: its grid depends on M), with data spread.
2. Plans at prices of memory (``planner.search.memory``), each judged by its lean program (``planner.partition``), above
   2,000 ops by what lies there op by op; the cheapest that fits is mixed with cheaper ones that do not, and then, up
   to 2,000 ops, solved exactly in blocks.
3. The leanest of all these with ops in steps.
4. Plans of the literature, as they are and with ops in steps (``fitted_by_others``).
5. Else it is refused, with what takes the room. What no plan can keep to is refused before (``least_memory``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from math import inf

import numpy as np
from numpy.typing import NDArray

from planner.algebra.tiling import Tiling
from planner.artifacts.asked import ByWorker
from planner.cost.priced import PricedTables, payable
from planner.cost.residence import Residence
from planner.planning.goal import Goal
from planner.planning.limit.blocks import improve_blocks
from planner.planning.limit.in_steps import fitted_by_steps
from planner.planning.limit.mixing import exchanged, mixed, parts_of
from planner.planning.limit.refusal import does_not_fit
from planner.planning.limit.trial import MOST_TIGHTENED, Trial, inputs_held
from planner.progress import silent
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.effort import FEWEST_TRIALS, MOST_TRIALS
from planner.search.literature.methods import METHODS
from planner.search.memory.limit import Measured, Prices, at_prices
from planner.search.model.problem import Problem
from planner.search.repeats.shortened import in_order
from planner.search.request import SearchRequest
from planner.stop import StoppedError
from planner.units import format_bytes

_MOST_OPS_TRIED = 60_000
"""Ops of all plans that are searched for at prices, about: of a large graph fewer are."""
_MOST_MIXED = 3
"""Cheaper plans with which the best one is mixed at most."""
_MOST_OPS_OF_BLOCKS = 100_000
"""Ops of all graphs of which a block is solved, about."""
_MOST_PROGRAMS_OF_BLOCKS = 8
"""Plans with other blocks whose programs are made at most: near the limit it takes long to place buffers."""
_PRICE_IN_A_BLOCK = Fraction(1, 2)
"""Of the prices at which the best plan was found: there blocks are solved, and where memory has no price."""
_DOING = "planning within the limit on memory"


def within(first: Trial, ask: SearchRequest, limits: Sequence[int], goal: Goal, *, may_step: bool = False) -> Trial:
    """The plan, if it fits; else the best of those that were found to fit.

    Where the program of a large graph does not fit, all plans are held to as much less as it lacks.

    Args:
        first: the best plan without a limit.
        ask: what it was asked for; with tables of bytes. Strategies of the literature are what they are: of them no
            other plans are near.
        limits: the memory there is, one entry for each worker, in any order: who needs more has the larger.
        goal: what a plan is to have little of.
        may_step: ops may run in steps.

    Raises:
        InfeasibleError: no plan that was found fits; with what takes the room.
        StoppedError: the search is to end, and there is another plan that fits.
    """
    if first.holds(limits):
        return first

    tried: list[Trial] = []

    def in_steps(trial: Trial) -> Trial | None:
        # Tiles of inputs lie there whatever runs in steps.
        if not may_step or inputs_held(trial.decided) > sum(limits):
            return None
        ask.progress(f"{_DOING}: ops in steps")
        stepped = fitted_by_steps(trial, limits, ask.stop)
        if stepped is None or stepped.lacking_by_program(limits) <= 0:
            return stepped
        tried.append(stepped)
        return None

    # Of a large graph prices come first: programs with ops in steps take longer to make than all of them.
    fitting = in_steps(first) if first.is_exact else None
    method = METHODS.get(ask.strategy)
    if fitting is None and may_step and method is not None and method.looks_at_memory:
        graph, ops = first.decided.graph, first.decided.ops
        # What a worker takes on a grid is known only about: plans are made for all that there could be, and for less.
        rooms = [min(limits) * quarters // 4 for quarters in (1 << 20, 4, 3, 2)]
        leaner = (Trial(decide(graph, ops, replace(ask, room_bytes=room))) for room in rooms)
        tried.append(fitted_by_others(leaner, ask, limits, goal, may_step=True))
        fitting = tried[-1] if tried[-1].lacking_by_program(limits) <= 0 else None
    if fitting is None:
        search = _Within(first, ask, limits, goal)
        best = search.run()
        for _ in range(MOST_TIGHTENED):
            lacking = best.plan.lacking_by_program(limits) if best.is_fitting else 0
            if lacking <= 0:
                break
            ask.progress(f"{_DOING}: the program takes {format_bytes(lacking)} too much")
            search.tighten(lacking)
            best = search.run()
        if best.is_fitting and best.plan.lacking_by_program(limits) <= 0:
            usual = Trial(best.plan.decided, limit_bytes=min(limits))
            fitting = usual if usual.lacking_by_program(limits) <= 0 else best.plan
        else:
            fitting = in_steps(best.plan)
        if fitting is None:
            raise does_not_fit(min((best.plan, *tried), key=lambda trial: trial.lacking_by_program(limits)), limits)
    ask.stop.plan_is_there(is_fitting=True)
    return fitting


def fitted_by_others(
    trials: Iterable[Trial], ask: SearchRequest, limits: Sequence[int], goal: Goal, *, may_step: bool
) -> Trial:
    """The cheapest of these plans that fits, as it is or with ops in steps.

    Args:
        trials: the plans.
        ask: what they were asked for.
        limits: the memory there is, one entry for each worker, in any order.
        goal: what a plan is to have little of.
        may_step: ops may run in steps.

    Returns:
        The plan that lacks the least memory, where none fits.
    """
    leanest: Trial | None = None

    def ways(plain: Trial, most_lacking: float) -> Iterator[Trial | None]:
        # No program takes less than what lies there op by op; nor, in steps, than tiles of inputs.
        if plain.lacking_on_average(sum(limits)) <= most_lacking:
            yield replace(plain, is_lean=True, limit_bytes=min(limits))
        if may_step and (inputs_held(plain.decided) - sum(limits)) // len(limits) <= most_lacking:
            yield fitted_by_steps(plain, limits, ask.stop)

    different = {(*trial.decided.tilings.values(), *trial.decided.strategies.values()): trial for trial in trials}
    for plain in sorted(different.values(), key=goal.of):
        for trial in ways(plain, inf if leanest is None else leanest.lacking_by_program(limits)):
            leanest = min(filter(None, (leanest, trial)), key=lambda judged: judged.lacking_by_program(limits))
            if leanest.lacking_by_program(limits) <= 0:
                return leanest
    assert leanest is not None, "there is a plan"
    return leanest


class _Within:
    """A search for the cheapest plan within limits."""

    def __init__(self, first: Trial, ask: SearchRequest, limits: Sequence[int], goal: Goal) -> None:
        self._decided, self._ask, self._limits = first.decided, ask, limits
        by_worker = limits if isinstance(limits, ByWorker) else ()
        self._residence = Residence(first.decided.graph, first.decided.ops, by_worker)
        self._goal = replace(goal, highest_price=payable(goal.highest_price, self._residence, len(limits)))
        self._is_exact = first.is_exact
        self._room = sum(limits)
        """Residence that a plan may have at most."""
        self._known: dict[tuple[Tiling, ...], Measured[Trial]] = {}
        self._is_there = ask.stop.has_plan
        """There is a plan that fits, of a large graph as far as residence tells: a search may end with it."""

    def tighten(self, lacking: int) -> None:
        """Holds plans to so many bytes less on each worker."""
        self._room -= lacking * len(self._limits)
        self._is_there = self._ask.stop.has_plan
        self._known = {
            key: replace(plan, excess_bytes=self._exceeding(plan.residence)) for key, plan in self._known.items()
        }

    def run(self) -> Measured[Trial]:
        """The best plan; the one that lacks the least memory, if none fits."""
        if self._best() is None:
            tried, prices = self._at_prices(self._measured(Trial(self._decided, is_lean=True)))
            best = self._best()
            if best is None:
                return min(tried, key=lambda plan: (plan.excess_bytes, plan.objective))
            cuts = best.plan.decided.cuts
            cheaper = [plan for plan in tried if plan.objective < best.objective and plan.plan.decided.cuts == cuts]
            cheaper.sort(key=lambda plan: -plan.objective)
            with contextlib.suppress(StoppedError):
                for over in cheaper[: _MOST_MIXED if self._is_exact else 1]:
                    self._mix(over, self._best() or best, prices)
                if self._is_exact:
                    self._improve(self._best() or best, prices)
        best = self._best()
        assert best is not None, "there is one that fits"
        return best

    def _best(self) -> Measured[Trial] | None:
        """The cheapest of those that are known to fit."""
        fitting = [plan for plan in self._known.values() if plan.is_fitting]
        return min(fitting, key=lambda plan: (plan.objective, plan.excess_bytes), default=None)

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
        if lacking <= 0 and self._is_exact:
            lacking = trial.lacking(self._limits)
        if lacking <= 0:
            self._is_there = True
            if self._is_exact:
                self._ask.stop.plan_is_there(is_fitting=True)
        return Measured(trial, self._goal.of(trial), held, lacking)

    def _at_prices(self, start: Measured[Trial]) -> tuple[list[Measured[Trial]], Prices]:
        """Plans at prices of memory, each searched for anew."""
        ask, plain = self._ask, self._decided

        def plan_for(prices: Prices) -> Measured[Trial]:
            self._end_if_due()
            ask.progress(f"{_DOING}: memory has a price at {len(prices)} moments")
            priced = PricedTables(self._goal.tables, self._residence, prices)
            quick = replace(ask, effort="quick", tables=priced, progress=silent, is_needed=not ask.stop.has_plan)
            return self._measured(Trial(decide(plain.graph, plain.ops, quick).with_costs(ask.tables), is_lean=True))

        trials = min(MOST_TRIALS, max(FEWEST_TRIALS, _MOST_OPS_TRIED // len(plain.ops)))
        return at_prices(start, plan_for, len(self._limits), self._goal.highest_price, trials)

    def _mix(self, cheaper: Measured[Trial], best: Measured[Trial], prices: Prices) -> None:
        """Takes what may be taken of a plan that is cheaper than the best one and does not fit."""
        over, under, tables = cheaper.plan.decided, best.plan.decided, self._goal.tables
        parts = parts_of(over, under, tables, PricedTables(tables, self._residence, prices))

        def is_fitting(names: set[str]) -> bool:
            self._end_if_due()
            return self._measured(Trial(exchanged(over, under, names, self._ask.tables), is_lean=True)).is_fitting

        if len(parts) > 1:
            self._ask.progress(f"mixing a plan that fits with a cheaper one: they differ in {len(parts)} parts")
            mixed(parts, is_fitting)

    def _improve(self, best: Measured[Trial], prices: Prices) -> None:
        """Solves blocks of the best plan exactly."""
        ask, plain, tables = self._ask, self._decided, self._goal.tables
        graph, ops = in_order(plain.graph, plain.ops)
        less = {moment: price * _PRICE_IN_A_BLOCK for moment, price in prices.items()}
        problems = [
            Problem(graph, ops, len(self._limits), ask.partitioned_inputs, True, True, tables=table_set)
            for table_set in (tables, PricedTables(tables, self._residence, less))
        ]

        programs = 0

        def take(plan: Decision) -> bool:
            nonlocal programs
            self._end_if_due()
            if self._exceeding(self._residence.of(plan)) > 0 or programs == _MOST_PROGRAMS_OF_BLOCKS:
                return False
            programs += 1
            return self._measured(Trial(plan.with_costs(ask.tables), is_lean=True)) is self._best()

        ask.progress(f"{_DOING}: blocks of a plan that fits")
        plans = [plan.plan.decided for plan in self._known.values() if plan.plan.decided.cuts == best.plan.decided.cuts]
        block_count = _MOST_OPS_OF_BLOCKS // len(ops)
        improve_blocks(best.plan.decided, plans, problems, block_count, take, self._end_if_due)
