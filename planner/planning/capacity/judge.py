"""What a plan takes, and whether it fits: by its program where that is quickly made, else by what lies there op by op.

A program takes at least what lies there op by op (``planner.cost.residence``), and a lean one little more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from planner.planning.capacity.ladder import Rung
from planner.planning.limit.trial import Trial, trial_of

_MOST_PARTS: Final = 30_000
"""Ops, times workers, up to which each plan has a program made."""
_MOST_LEAN: Final = 2
"""The leanest plans of which programs say which is the leanest."""
_MOST_CONFIRMED: Final = 500_000
"""The same of the one plan that is the answer: half a minute of the processor."""


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
    rung: Rung


def is_quick(rung: Rung) -> bool:
    """Whether a plan's program is quickly made."""
    return _parts(rung) <= _MOST_PARTS


def can_be_confirmed(rung: Rung) -> bool:
    """Whether the program of the one plan that is the answer is made."""
    return _parts(rung) <= _MOST_CONFIRMED


def _parts(rung: Rung) -> int:
    return len(rung.decided.ops) * rung.decided.workers


def by_residence(rung: Rung, limits: Sequence[int]) -> Judged:
    """What lies there op by op."""
    workers = len(limits)
    lacking = -(-(rung.held_bytes - sum(limits)) // workers)
    return Judged(_lean(rung, limits), -(-rung.held_bytes // workers), False, lacking, rung)


def by_program(rung: Rung, limits: Sequence[int], *, lean: bool) -> Judged:
    """What a plan's program takes."""
    trial = _lean(rung, limits) if lean else trial_of(rung.decided)
    peaks = trial.partitioned.program.peak_bytes
    most = zip(sorted(peaks), sorted(limits), strict=True)  # who needs more has the larger
    return Judged(trial, max(peaks), True, max(peak - limit for peak, limit in most), rung)


def _lean(rung: Rung, limits: Sequence[int]) -> Trial:
    return replace(trial_of(rung.decided, lean=True), limit_bytes=min(limits))


def least_of(rungs: Sequence[Rung], limits: Sequence[int]) -> Judged:
    """What the leanest plan takes."""
    leanest = sorted(rungs, key=lambda rung: (rung.held_bytes, rung.rank))[:_MOST_LEAN]
    if not is_quick(leanest[0]):
        return by_residence(leanest[0], limits)
    judged = [by_program(rung, limits, lean=True) for rung in leanest]
    return min(judged, key=lambda one: (one.lacking_bytes, one.worker_bytes))


def first_fitting(rungs: Sequence[Rung], limits: Sequence[int], *, confirmed: bool = False) -> Judged | None:
    """The plan with the lowest rank of those that fit, or None.

    Args:
        rungs: plans.
        limits: the memory there is, one entry for each worker, in any order.
        confirmed: a program is made even where that takes long.
    """
    room = sum(limits)
    for rung in sorted((rung for rung in rungs if rung.held_bytes <= room), key=lambda rung: rung.rank):
        if not is_quick(rung) and not (confirmed and can_be_confirmed(rung)):
            return by_residence(rung, limits)
        for lean in (False, True) if is_quick(rung) else (True,):
            judged = by_program(rung, limits, lean=lean)
            if judged.lacking_bytes <= 0:
                return judged
    return None


def lacking_of(rung: Rung, limits: Sequence[int]) -> int:
    """Bytes that the worker lacks that lacks the most; 0 or less: the plan fits."""
    judged = by_residence(rung, limits)
    if judged.lacking_bytes <= 0 and is_quick(rung):
        judged = by_program(rung, limits, lean=True)
    return judged.lacking_bytes
