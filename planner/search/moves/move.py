"""The interface of moves: a way from the plans that are known to better ones, or to a bound of all.

A search is a list of moves (``planner.search.schedule``), made one after the other until the best plan is proven best,
as the optimizers of opt_einsum and the passes of onnx/ir-py are values of one signature. A move knows neither what
effort it is part of nor what else is in the list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from planner.progress import Progress, silent, with_best
from planner.search.model.found import Found
from planner.search.model.problem import Problem, Restriction, no_restriction
from planner.stop import Stop

Narrow: TypeAlias = Callable[[Restriction, tuple[int, ...]], Restriction]
"""Puts the user's rules above a restriction, for these cuts."""


@dataclass(frozen=True, slots=True)
class PlanToBeat:
    """A plan of nearly the same graph, which is to be beaten."""

    most_cost: int
    """Bytes; a plan that costs more does not stand, and needs no bound."""
    keep: Restriction
    """Restricts tensors and ops that both graphs have to their choices in that plan."""


@dataclass(frozen=True, slots=True)
class Ground:
    """The problem that moves are made on."""

    problem: Problem
    cuts: tuple[int, ...]
    """The ways of each cut, outermost first."""
    narrow: Narrow
    to_beat: PlanToBeat | None = None
    progress: Progress = silent
    """The listener to the search's progress."""
    stop: Stop = field(default_factory=Stop)
    """Asked whether the search is to end."""
    is_needed: bool = True
    """A plan is made in any case; else the search may end before it has one."""
    room_bytes: int | None = None
    """The bytes of each worker's memory, for a method that looks at it; None: enough."""

    @property
    def free(self) -> Restriction:
        """No restriction but the user's rules."""
        return self.narrow(no_restriction, self.cuts)


@dataclass(frozen=True, slots=True)
class Known:
    """The plans of one problem so far, and a bound."""

    plans: tuple[Found, ...] = ()
    lower: int | None = None
    """No plan of the problem costs less; None where that is not known."""

    @property
    def best(self) -> Found:
        """The plan of the least cost, the first of several."""
        return min(self.plans, key=lambda plan: plan.cost)

    @property
    def is_proven(self) -> bool:
        """Whether no plan costs less than the best one."""
        return bool(self.plans) and self.lower == self.best.cost

    def with_best(self, best: Found) -> Known:
        """The outcome with a plan in the place of the best one."""
        old = self.best
        return replace(self, plans=tuple(best if plan is old else plan for plan in self.plans))


Move: TypeAlias = Callable[[Ground, Known], Known]
"""Makes plans from those that are known, makes them better, or bounds what all of them cost."""


def made(moves: Sequence[Move], ground: Ground, first: int = 1) -> Found:
    """The best plan after all moves, or after the one that proves it best, or where the search is to end.

    Args:
        moves: the first of which makes a plan.
        ground: what they are made on.
        first: how many moves make the first plan, which is made in any case where it is needed.

    Returns:
        The plan, with its bound.

    Raises:
        StoppedError: the search is to end, has no plan yet, and need not have one.
    """
    outcome = Known()
    for number, move in enumerate(moves):
        move_ground = ground
        if outcome.plans:
            move_ground = replace(ground, progress=with_best(ground.progress, outcome.best.cost, outcome.lower))
        if number < first and ground.is_needed:
            move_ground = replace(move_ground, stop=Stop())
        outcome = move(move_ground, outcome)
        if number + 1 == first:
            ground.stop.plan_is_there()
        if outcome.is_proven:
            break
    return replace(outcome.best, lower=outcome.lower)
