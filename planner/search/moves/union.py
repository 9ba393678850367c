"""The union of plans: the best plan of which every variable is what it is in one of several.

Plans from different starts are good in different places. Over so few candidates the whole graph is solved exactly and
quickly, and the result is no worse than the best of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from planner.errors import InfeasibleError
from planner.search.exact.choices import Choices
from planner.search.model.found import Found
from planner.search.model.problem import Problem
from planner.search.moves.move import Ground, Known

_MAX_ENTRIES = 1 << 22
"""A bucket larger than this is not worth its time; fewer plans are put together instead."""


def united(problem: Problem, plans: Sequence[Found]) -> Found:
    """The best plan whose variables are each what they are in one of these, as many as can be solved together.

    Args:
        problem: the graph's variables and tables.
        plans: at least one; that of the least cost counts first.
    """
    ranked = sorted(plans, key=lambda found: found.cost)
    best = ranked[0]
    for count in range(2, len(ranked) + 1):
        together = zip(*(found.composites for found in ranked[:count]), strict=True)
        choices = Choices.of([problem.intern(tuple(dict.fromkeys(options))) for options in together])
        with contextlib.suppress(InfeasibleError):
            composites, solution = problem.solve(choices, _MAX_ENTRIES)
            if solution.total < best.cost:
                best = replace(best, composites=composites, cost=solution.total)
    return best


def unite(ground: Ground, known: Known) -> Known:
    """The union in the place of the best plan."""
    return known.with_best(united(ground.problem, known.plans))
