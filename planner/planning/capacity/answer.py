"""What is answered for one machine, or for so much memory: a row for each number of workers, and the least of them.

A plan for fewer workers is one for more, of which some are idle: so no row takes more memory or time than one above it,
and none holds a smaller batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.cost.tables import CostTables
from planner.errors import TofuError
from planner.machine.routes import part
from planner.machine.topology_file import Machine
from planner.planning.capacity.batches import LargestBatch
from planner.planning.capacity.judge import Judged, first_fitting, least_of
from planner.planning.capacity.ladder import Ladder, Rung
from planner.planning.capacity.sized import Batches
from planner.planning.limit.trial import Trial
from planner.planning.machines import Target, memory_limits
from planner.planning.objective import Times, can_be_timed
from planner.planning.recomputing import Recompute
from planner.progress import Progress
from planner.results import FitAnswer, FitRow, WhyNot


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of one machine, or of so much memory."""

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
        """What is planned for."""
        machine = self.machine
        return Target(count, None if machine is None else part(machine, count), machine)

    def limits(self, target: Target) -> tuple[int, ...]:
        """The memory there is, one entry for each worker, in no order."""
        limits = memory_limits(self.memory_bytes, target.machine, target.workers)
        assert limits is not None, "there is a limit"
        return limits


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer, and the plans behind it."""

    answer: FitAnswer
    plans: dict[int, tuple[Target, Trial, Recompute]]
    """By number of workers, the plan that is taken; none where none fits."""


def answered(batches: Batches, asked: Asked, progress: Progress) -> Answered:
    """Plans for each number of workers.

    Args:
        batches: the model.
        asked: what is asked.
        progress: told what is being done.

    Raises:
        TofuError: the model cannot be planned.
    """
    search = _Counts(batches, asked, progress)
    found = [search.row(count) for count in asked.counts]
    rows = _monotone(found)
    fitting = next((number for number, row in enumerate(rows) if row.fits and _is_within(row, asked)), None)
    below = len(rows) - 1 if fitting is None else fitting - 1
    why_not = None if below < 0 else search.why_not(rows[below])
    answer = FitAnswer(
        None if asked.machine is None else asked.machine.name,
        max(asked.limits(asked.target(asked.counts[-1]))),
        tuple(rows),
        None if fitting is None else rows[fitting].workers,
        why_not,
    )
    return Answered(answer, search.plans)


def _is_within(row: FitRow, asked: Asked) -> bool:
    within = asked.within_seconds
    return within is None or (row.estimated_seconds is not None and row.estimated_seconds <= within)


class _Counts:
    """Plans for one number of workers after the other."""

    def __init__(self, batches: Batches, asked: Asked, progress: Progress) -> None:
        self._batches, self._asked, self._progress = batches, asked, progress
        self._largest: list[LargestBatch] | None = None
        self._known_batch = 0
        """The largest for which there is a plan that fits on fewer workers, and so on more; 0: none is known."""
        self._is_confirmed = False
        """A program said of some number of workers that a plan fits; of larger ones it need not."""
        self.plans: dict[int, tuple[Target, Trial, Recompute]] = {}

    def row(self, count: int) -> FitRow:
        """What plans for so many workers take."""
        asked = self._asked
        target = asked.target(count)
        limits = asked.limits(target)
        models = [one for one in (self._batches.given, self._batches.given.computed_again) if one is not None]
        at_least = {one: one.every_plan.least(count).total_bytes for one in models}
        row = FitRow(count, -(-min(at_least.values()) // count))
        times, judged = self._times(target), None
        for sized in models:
            if at_least[sized] > sum(limits):
                continue
            ladder = Ladder(sized, target, times, self._progress)
            fast = [] if judged is not None else ladder.fast()
            row, found = self._with_plan(row, ladder, fast, ladder.lean(), limits)
            judged = judged or found
        if judged is not None:
            self.plans[count] = (target, judged.trial, judged.rung.recompute)
            row = replace(row, estimated_seconds=None if times is None else times.seconds(judged.trial))
        return replace(row, largest_batch=self._largest_batch(target, limits, row))

    def _times(self, target: Target) -> Times | None:
        machine = target.machine
        return None if machine is None or not can_be_timed(machine, None) else Times(machine, CostTables())

    def _with_plan(
        self, row: FitRow, ladder: Ladder, fast: list[Rung], lean: list[Rung], limits: Sequence[int]
    ) -> tuple[FitRow, Judged | None]:
        """The row with what these plans take, and the fastest that fits, where fast ones were looked for."""
        if not fast and not lean:
            return row, None
        least = least_of([*fast, *lean], limits)
        row = _with_least(row, least.worker_bytes, least)
        if not fast:
            return row, None
        fastest = min(fast, key=lambda rung: rung.rank)
        is_between = least.lacking_bytes <= 0 and fastest.held_bytes > sum(limits)
        rungs = [*fast, *lean, *(ladder.between(fastest) if is_between else ())]
        judged = first_fitting(rungs, limits, confirmed=not self._is_confirmed)
        if judged is None:
            return row, None
        self._is_confirmed = True
        row = replace(
            _with_least(row, judged.worker_bytes, judged),
            fits=True,
            plan_workers=row.workers,
            plan_bytes=judged.worker_bytes,
            moved_bytes=judged.trial.decided.moved_bytes,
            recompute=judged.rung.recompute.which,
        )
        return row, judged

    def _largest_batch(self, target: Target, limits: Sequence[int], row: FitRow) -> int | None:
        samples, (low, high) = self._batches.samples, self._asked.batches
        if samples is None:
            return None
        if row.fits and low <= samples.given <= high:
            self._known_batch = max(self._known_batch, samples.given)
        if self._known_batch == high:
            return high
        try:
            if self._largest is None:
                ways = (False,) if self._batches.given.computed_again is None else (False, True)
                ends = self._asked.batches
                self._largest = [LargestBatch(self._batches, ends, self._progress, again=way) for way in ways]
            for largest in self._largest:
                self._known_batch = largest.on(target, limits, self._known_batch) or 0
        except TofuError as error:
            self._batches.fix(error)
            return None
        return self._known_batch or None

    def why_not(self, row: FitRow) -> WhyNot:
        """What takes the room on so many workers."""
        given = self._batches.given
        models = [one for one in (given, given.computed_again) if one is not None]
        least = min((one.every_plan.least(row.workers) for one in models), key=lambda least: least.total_bytes)
        return WhyNot(
            row.workers,
            least.op,
            {said: -(-size // row.workers) for said, size in least.by_purpose().items()},
        )


def _with_least(row: FitRow, worker_bytes: int, judged: Judged) -> FitRow:
    """The row, where a plan takes less than the leanest so far, or as much and its program says so."""
    if row.least_bytes is not None and worker_bytes > row.least_bytes:
        return row
    return replace(
        row,
        least_bytes=worker_bytes,
        is_by_program=judged.is_by_program,
        least_recompute=judged.rung.recompute.which,
    )


def _monotone(rows: Sequence[FitRow]) -> list[FitRow]:
    """The rows with what a plan for fewer workers is to more."""
    found: list[FitRow] = []
    for row in rows:
        before = found[-1] if found else None
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
        found.append(row)
    return found


def _is_better(fewer: FitRow, more: FitRow) -> bool:
    """Whether the plan for fewer workers is the plan for more: theirs does not fit, or is slower."""
    if not more.fits:
        return True
    if fewer.estimated_seconds is None or more.estimated_seconds is None:
        return False
    return fewer.estimated_seconds < more.estimated_seconds
