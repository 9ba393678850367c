"""Memory of a plan, and its fit: by its program where that is quickly made, else by what lies there op by op.

A program takes at least what lies there op by op (``planner.cost.residence``), and a lean one little more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from planner.features.fit.ladder import Ladder, Rung
from planner.partition.occupancy import tightest
from planner.planning.limit.trial import Trial, fullest
from planner.planning.recomputation.offers import Offers
from planner.planning.thresholds import Work

_MOST_LEAN: Final = 2
"""The leanest plans of which programs say which is the leanest."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A plan, and what a worker takes."""

    trial: Trial
    worker_bytes: int
    """Of the fullest worker; without a program, of an average one at the fullest op."""
    is_by_program: bool
    """Its program says so."""
    lacking_bytes: int
    """What the worker lacks that lacks the most; 0 or less: the plan fits."""
    again: frozenset[str]
    """Activations that are computed again in it."""


def by_residence(rung: Rung, limits: Sequence[int]) -> Judged:
    """The memory op by op."""
    workers = len(limits)
    lacking = -(-(rung.held_bytes - sum(limits)) // workers)
    return Judged(_lean(rung, limits), -(-rung.held_bytes // workers), False, lacking, rung.again)


def by_program(rung: Rung, limits: Sequence[int]) -> Judged:
    """The memory of a plan's lean program."""
    trial = _lean(rung, limits)
    peaks = trial.partitioned.program.peak_bytes
    worker, limit = tightest(peaks, limits)
    return Judged(trial, max(peaks), True, peaks[worker] - limit, rung.again)


def _lean(rung: Rung, limits: Sequence[int]) -> Trial:
    return Trial(rung.decided, is_lean=True, limit_bytes=min(limits))


def least_of(rungs: Sequence[Rung], limits: Sequence[int]) -> Judged:
    """The memory of the leanest plan."""
    leanest = sorted(rungs, key=lambda rung: (rung.held_bytes, rung.rank))[:_MOST_LEAN]
    if not leanest[0].is_exact:
        return by_residence(leanest[0], limits)
    judged = [by_program(rung, limits) for rung in leanest]
    return min(judged, key=lambda plan: (plan.lacking_bytes, plan.worker_bytes))


def fitting(
    ladder: Ladder, rungs: Sequence[Rung], offers: Offers, limits: Sequence[int], *, confirmed: bool
) -> Judged | None:
    """The best of some plans, each with as little computed again as makes it fit; None if none fits.

    Args:
        ladder: that made them.
        rungs: plans in which nothing is computed again.
        offers: what may be.
        limits: the memory there is, one entry for each worker, in any order.
        confirmed: a program is made even where that takes long.
    """
    makes_program = (Work.ANSWER if confirmed else Work.COMPARISON).is_done_for(rungs[0].decided)
    choice = ladder.fitting(rungs, offers, limits, makes_program=makes_program)
    if choice is None:
        return None
    again, trial = choice
    if makes_program:
        return of_program(trial, again)
    average = -(-fullest(trial.decided) // len(limits))
    return Judged(replace(trial, is_lean=True), average, False, average - sum(limits) // len(limits), again)


def of_program(trial: Trial, again: frozenset[str]) -> Judged:
    """A plan whose program fits.

    Args:
        trial: the plan.
        again: the activations that are computed again in it.
    """
    return Judged(trial, max(trial.partitioned.program.peak_bytes), True, 0, again)


def lacking_of(rung: Rung, limits: Sequence[int]) -> int:
    """Bytes that the worker lacks that lacks the most; 0 or less: the plan fits."""
    judged = by_residence(rung, limits)
    if judged.lacking_bytes <= 0 and rung.is_exact:
        judged = by_program(rung, limits)
    return judged.lacking_bytes
