"""Plans grown from starts: recursion finds them, fusion improves them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from planner.errors import InfeasibleError
from planner.search.model.found import Found
from planner.search.moves.fusion import improve, improve_once
from planner.search.moves.move import Ground, Known
from planner.search.moves.recursion import search_recursively
from planner.search.moves.starts import Starts

Fusion: TypeAlias = Callable[[Ground, Found], Found]
"""Makes a plan better, if it can."""


def until_stable(ground: Ground, found: Found) -> Found:
    """Goes on until no change makes the plan better."""
    return improve(ground.problem, ground.cuts, ground.free, found, ground.progress)


def once(ground: Ground, found: Found) -> Found:
    """Makes each kind of change once."""
    return improve_once(ground.problem, ground.cuts, ground.free, found, ground.progress)


def once_but_last(ground: Ground, found: Found) -> Found:
    """Makes each kind of change once, but leaves the last cut: recursion solved it exactly, with all else as it is."""
    left = (len(ground.cuts),)
    return improve_once(ground.problem, ground.cuts, ground.free, found, ground.progress, left=left)


@dataclass(frozen=True, slots=True)
class Grow:
    """Adds a plan for each start."""

    starts: Starts
    fusion: Fusion
    most_fused: int | None = None
    """Plans that are improved, those of the least cost; None: all."""

    def __call__(self, ground: Ground, known: Known) -> Known:
        """Finds the plans; a start under which the user's rules leave none adds none, but the first must."""
        found: list[Found] = []
        for start in self.starts(ground):
            restrict = ground.narrow(start, ground.cuts)
            with contextlib.suppress(InfeasibleError) if known.plans else contextlib.nullcontext():
                found.append(search_recursively(ground.problem, ground.cuts, restrict, ground.progress))
        if self.most_fused is not None:
            found.sort(key=lambda plan: plan.cost)
        fused = [self.fusion(ground, plan) for plan in found[: self.most_fused]]
        plans = (*known.plans, *fused, *found[len(fused) :])
        lower = known.lower
        if len(ground.cuts) < 2 and not ground.problem.decided_apart and not known.plans:
            lower = plans[0].cost  # one cut is solved exactly
        return Known(plans, lower)


@dataclass(frozen=True, slots=True)
class Fuse:
    """Improves the best plan."""

    fusion: Fusion

    def __call__(self, ground: Ground, known: Known) -> Known:
        """The plans, the best one improved."""
        return known.with_best(self.fusion(ground, known.best))
