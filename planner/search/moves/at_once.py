"""All cuts as one: a cut in four has other parts than two cuts in two where a dim is uneven, or too small.

Six rows in four parts at once are not what halves of halves are; and data that must be divided are replicated where no
dim has a row for each worker. Such a plan is what strategies of one cut (``equalchop``, ``spartan``) have; it is found
exactly, in little time beside that of several cuts.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from math import prod

from planner.errors import InfeasibleError, UsageError
from planner.search.model.found import Found
from planner.search.model.problem import Problem, no_restriction
from planner.search.moves.move import Ground
from planner.search.moves.recursion import search_recursively
from planner.stop import StoppedError


def has_other_parts(problem: Problem, cuts: tuple[int, ...]) -> bool:
    """Whether all cuts as one divide something in parts that the cuts one by one do not make; False of what is too
    entangled to be solved exactly.
    """
    ways = prod(cuts)
    spaces = () if len(cuts) < 2 or problem.decided_apart else dict.fromkeys(problem.spaces)
    is_uneven = any(size > ways and size % ways for space in spaces for size in space.shape)
    return is_uneven or any(not space.may_repeat and max(space.shape, default=0) < ways for space in spaces)


def or_at_once(ground: Ground, plan: Found) -> tuple[tuple[int, ...], Found]:
    """The plan, or one of a single cut that costs less; its bound is of both kinds.

    Args:
        ground: what the plan was found on.
        plan: of several cuts.

    Returns:
        The cuts of the plan, and the plan.
    """
    problem, ways = ground.problem, (prod(ground.cuts),)
    with contextlib.suppress(UsageError, InfeasibleError, StoppedError):  # a pin may be of several cuts
        rival = search_recursively(problem, ways, ground.narrow(no_restriction, ways), ground.progress, ground.stop)
        if rival.cost < plan.cost and not problem.decided_apart:
            lower = None if plan.lower is None else min(plan.lower, rival.cost)
            return ways, replace(rival, lower=lower)
    return ground.cuts, plan
