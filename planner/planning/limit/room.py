"""Shared deliveries in a plan that stays as it is otherwise: those for which there is memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from planner.counted import may_stop
from planner.planning.deliveries import with_savings
from planner.planning.goal import Goal
from planner.planning.limit.trial import Trial
from planner.planning.paid_again import Saving, paid_for_twice, savings
from planner.planning.thresholds import Work
from planner.search.decision import Decision
from planner.search.request import SearchRequest
from planner.tdl.descriptions import Descriptions

SHARED: Final = "deliveries that readers share where there is memory"
_MOST_TRIALS = 24
"""Programs that are made at most to see what fits."""


def shared_where_room(
    trial: Trial,
    goal: Goal,
    ask: SearchRequest,
    descriptions: Descriptions,
    limits: Sequence[int] | None,
) -> Trial:
    """The plan, with those deliveries shared that bring it nearer to its goal and for which there is memory.

    A delivery is held from its first reader to its last. The plan's program says whether it fits: with all that could
    be shared, or else with one after the other, those that save most first. Where one does not fit, its readers are
    told apart where they are furthest from each other, and each of the two groups is tried: readers of one layer may
    share where those of the forward and the backward pass together may not.

    Args:
        trial: a plan in which every reader has its own delivery, and its program; it fits.
        goal: what a plan is to have little of.
        ask: what the plan was asked for; with tables of bytes.
        descriptions: of the model's operators.
        limits: the memory there is, in any order; None: enough.
    """
    plain, tables = trial.decided, ask.tables
    possible = savings(plain, paid_for_twice(plain, tables))
    if not possible:
        return trial

    def better(chosen: Sequence[Saving]) -> Trial | None:
        """The plan with these, if it fits and has less of the goal than the best one so far."""
        candidate = replace(trial, decided=with_savings(plain, chosen, descriptions, tables))
        with ask.stop.may_leave_out(SHARED), may_stop(ask.stop):
            return candidate if goal.of(candidate) < goal.of(best) and candidate.fits(limits) else None
        return None

    best = trial
    everything = better(possible)
    if everything is not None:
        return everything
    # The program of a large graph takes long to make: there is time for few of them, not for one a delivery.
    if not Work.TRIALS.is_done_for(plain):
        return _with_the_first(trial, plain, possible, goal, ask, descriptions, limits)
    place = {op.name: number for number, op in enumerate(plain.graph.ops)}
    chosen: list[Saving] = []
    waiting = sorted(possible, key=lambda saving: -saving.saved_bytes)
    for number in range(_MOST_TRIALS):
        if not waiting or ask.stop.leaves_out(SHARED):
            break
        doing = f"sharing deliveries where there is memory: {len(chosen)} of {number} tried"
        ask.progress(doing, cost=best.decided.cost)
        saving = waiting.pop(0)
        improvement = better([*chosen, saving])
        if improvement is not None:
            best, chosen = improvement, [*chosen, saving]
        else:
            waiting = sorted([*waiting, *_apart(saving, place)], key=lambda saving: -saving.saved_bytes)
    return best


def _with_the_first(
    trial: Trial,
    plain: Decision,
    possible: Sequence[Saving],
    goal: Goal,
    ask: SearchRequest,
    descriptions: Descriptions,
    limits: Sequence[int] | None,
) -> Trial:
    """The plan of a large graph with as many deliveries shared as there is memory for, those that save most first.

    What lies there op by op says how many these are, by halving; a program is made only of what that leads to.
    """
    waiting = sorted(possible, key=lambda saving: -saving.saved_bytes)
    few, many = 0, len(waiting)
    while many - few > 1 and not ask.stop.leaves_out(SHARED):
        ask.progress(f"sharing deliveries where there is memory: {few} to {many}", cost=trial.decided.cost)
        count = (few + many) // 2
        candidate = replace(trial, decided=with_savings(plain, waiting[:count], descriptions, ask.tables))
        is_enough = limits is None or candidate.lacking_on_average(sum(limits)) <= 0
        few, many = (count, many) if is_enough else (few, count)
    for count in (few, few // 2):
        candidate = replace(trial, decided=with_savings(plain, waiting[:count], descriptions, ask.tables))
        if count and candidate.fits(limits) and goal.of(candidate) < goal.of(trial):
            return candidate
    return trial


def _apart(saving: Saving, place: Mapping[str, int]) -> Iterator[Saving]:
    """The readers in two groups, where most ops lie between them; without a group that saves nothing."""
    readers = saving.delivery.readers
    if len(readers) == 1:
        return
    widest = max(range(1, len(readers)), key=lambda at: place[readers[at]] - place[readers[at - 1]])
    for group in (saving.among(0, widest), saving.among(widest, len(readers))):
        if group.saved_bytes:
            yield group
