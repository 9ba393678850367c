"""The answer for one machine, or for one limit on memory: a row for each number of workers, and the least of them.

A plan for fewer workers is one for more, of which some are idle: so no row takes more memory or time than one above it,
and none holds a smaller batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from planner.cost.tables import CostTables
from planner.errors import InfeasibleError, TofuError
from planner.features.fit.batches import LargestBatch
from planner.features.fit.judge import Judged, fitting, least_of, of_program
from planner.features.fit.ladder import Ladder
from planner.features.fit.result import FitAnswer, FitRow, WhyNot
from planner.features.fit.sized import Batches
from planner.machine.routes import part
from planner.machine.topology_file import Machine
from planner.options.planning import PlanOptions
from planner.planning.machines import Target, memory_limits
from planner.planning.objective import Times, can_be_timed
from planner.planning.recomputation.offers import Offers
from planner.planning.request import PlanRequest
from planner.planning.session import Session
from planner.progress import Progress


@dataclass(frozen=True, slots=True)
class Query:
    """The question about one machine, or about a limit on memory."""

    machine: Machine | None
    """The topology; None: none is given."""
    memory_bytes: int | None
    """What the tensors of a worker may take; None: what the topology's devices have."""
    counts: tuple[int, ...]
    """Numbers of workers, ascending."""
    batches: tuple[int, int]
    """The smallest and the largest that are looked at."""
    within_seconds: float | None
    """An iteration must not be estimated to take longer; None: it may."""

    def target(self, count: int) -> Target:
        """The machine and number of workers to plan for."""
        machine = self.machine
        return Target(count, None if machine is None else part(machine, count), machine)

    def limits(self, target: Target) -> tuple[int, ...]:
        """The memory there is, one entry for each worker, in no order."""
        limits = memory_limits(self.memory_bytes, target.machine, target.workers)
        assert limits is not None, "there is a limit"
        return limits


def answered(batches: Batches, query: Query, progress: Progress) -> FitAnswer:
    """Plans for each number of workers.

    Args:
        batches: the model.
        query: what is asked.
        progress: told what is being done.

    Raises:
        TofuError: the model cannot be planned.
    """
    search = _Counts(batches, query, progress)
    own_rows = [search.row(count) for count in query.counts]
    rows = _monotone(own_rows)
    fitting = next((number for number, row in enumerate(rows) if row.fits and _is_within(row, query)), None)
    below = len(rows) - 1 if fitting is None else fitting - 1
    why_not = None if below < 0 else search.why_not(rows[below])
    return FitAnswer(
        None if query.machine is None else query.machine.name,
        max(query.limits(query.target(query.counts[-1]))),
        tuple(rows),
        None if fitting is None else rows[fitting].workers,
        why_not,
    )


def _is_within(row: FitRow, query: Query) -> bool:
    within = query.within_seconds
    return within is None or (row.estimated_seconds is not None and row.estimated_seconds <= within)


class _Counts:
    """Plans for one number of workers after the other."""

    def __init__(self, batches: Batches, query: Query, progress: Progress) -> None:
        self._batches, self._query, self._progress = batches, query, progress
        self._largest: LargestBatch | None = None
        self._known_batch = 0
        """The largest for which there is a plan that fits on fewer workers, and so on more; 0: none is known."""
        self._is_confirmed = False
        """A program said of some number of workers that a plan fits; of larger ones it need not."""

    def row(self, count: int) -> FitRow:
        """The memory of plans for so many workers."""
        query, sized = self._query, self._batches.stated
        target = query.target(count)
        limits = query.limits(target)
        at_least = sized.whatever_is_again.least(count).total_bytes
        row = FitRow(count, -(-at_least // count))
        if at_least <= sum(limits):
            times = self._times(target)
            row, judged = self._with_plan(row, Ladder(sized, target, times, self._progress), target, limits)
            if judged is not None:
                row = replace(row, estimated_seconds=None if times is None else times.seconds(judged.trial))
        return replace(row, largest_batch=self._largest_batch(target, limits, row))

    def _times(self, target: Target) -> Times | None:
        machine = target.machine
        return None if machine is None or not can_be_timed(machine, None) else Times(machine, CostTables())

    def _with_plan(
        self, row: FitRow, ladder: Ladder, target: Target, limits: tuple[int, ...]
    ) -> tuple[FitRow, Judged | None]:
        """The row with what plans take, and the best that fits."""
        fast, lean = ladder.fast(), ladder.lean()
        fastest = min(fast, key=lambda rung: rung.rank)
        offers = ladder.offers(fastest)
        last = offers.sets[-1]
        quick = fastest.is_exact
        again = [ladder.with_copies(rung, last, makes_program=quick) for rung in lean[-1:] if last]
        least = least_of([*fast, *lean, *again], limits)
        row = _with_least(row, least)
        is_between = not last and least.lacking_bytes <= 0 and fastest.held_bytes > sum(limits)
        leaner = [*lean, *(ladder.between(fastest) if is_between else ())]
        # Of a graph that takes long, lean plans are looked at only where no fast one fits.
        for rungs in ([*fast, *leaner],) if quick else (fast, leaner):
            judged = fitting(ladder, rungs, offers, limits, confirmed=not self._is_confirmed) if rungs else None
            if judged is not None:
                break
        if judged is None and quick:
            judged = self._as_planned(target, limits, offers)
        if judged is None:
            return row, None
        self._is_confirmed = True
        row = replace(
            _with_least(row, judged),
            fits=True,
            plan_workers=row.workers,
            plan_bytes=judged.worker_bytes,
            moved_bytes=judged.trial.decided.moved_bytes,
            recompute=_recompute(judged),
        )
        return row, judged

    def _as_planned(self, target: Target, limits: tuple[int, ...], offers: Offers) -> Judged | None:
        """What `tofu plan` finds, which looks longer; None where it finds nothing, or every set takes too much."""
        if all(offers.least(number) > sum(limits) for number in reversed(range(len(offers.sets)))):
            return None
        source = self._batches.stated.source
        memory, tell = self._query.memory_bytes, self._progress
        options = PlanOptions(model=source.model, memory=memory, effort="quick", progress=tell)
        session = Session(PlanRequest(options, source, target, limits))
        try:
            return of_program(session.planned().trial, frozenset(session.again))
        except InfeasibleError:
            return None

    def _largest_batch(self, target: Target, limits: Sequence[int], row: FitRow) -> int | None:
        samples, (low, high) = self._batches.samples, self._query.batches
        if samples is None:
            return None
        if row.fits and low <= samples.given <= high:
            self._known_batch = max(self._known_batch, samples.given)
        if self._known_batch == high:
            return high
        try:
            if self._largest is None:
                self._largest = LargestBatch(self._batches, self._query.batches, self._progress)
            self._known_batch = self._largest.on(target, limits, self._known_batch) or 0
        except TofuError as error:
            self._batches.fix(error)
            return None
        return self._known_batch or None

    def why_not(self, row: FitRow) -> WhyNot:
        """The largest tensors on so many workers."""
        least = self._batches.stated.whatever_is_again.least(row.workers)
        return WhyNot(
            row.workers,
            least.op,
            {purpose: -(-size // row.workers) for purpose, size in least.by_purpose().items()},
        )


def _with_least(row: FitRow, judged: Judged) -> FitRow:
    """The row, where a plan takes less than the leanest so far, or as much and its program says so."""
    if row.least_bytes is not None and judged.worker_bytes > row.least_bytes:
        return row
    return replace(
        row,
        least_bytes=judged.worker_bytes,
        is_by_program=judged.is_by_program,
        least_recompute=_recompute(judged),
    )


def _recompute(judged: Judged) -> Literal["none", "auto"]:
    return "auto" if judged.again else "none"


def _monotone(rows: Sequence[FitRow]) -> list[FitRow]:
    """The rows with what a plan for fewer workers is to more."""
    monotone: list[FitRow] = []
    for row in rows:
        before = monotone[-1] if monotone else None
        if before is not None:
            if before.least_bytes is not None and (row.least_bytes is None or before.least_bytes < row.least_bytes):
                row = replace(
                    row,
                    least_bytes=before.least_bytes,
                    is_by_program=before.is_by_program,
                    least_recompute=before.least_recompute,
                )
            if before.fits and _is_better(before, row):
                row = replace(
                    row,
                    fits=True,
                    plan_workers=before.plan_workers,
                    plan_bytes=before.plan_bytes,
                    moved_bytes=before.moved_bytes,
                    estimated_seconds=before.estimated_seconds,
                    recompute=before.recompute,
                )
        monotone.append(row)
    return monotone


def _is_better(smaller: FitRow, larger: FitRow) -> bool:
    """Whether the plan for fewer workers is the plan for more: theirs does not fit, or is slower."""
    if not larger.fits:
        return True
    if smaller.estimated_seconds is None or larger.estimated_seconds is None:
        return False
    return smaller.estimated_seconds < larger.estimated_seconds
