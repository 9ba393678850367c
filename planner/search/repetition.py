"""What plans repeat of a graph's work, and whether that is more than they may.

Where an op is replicated at a cut, each group does it again. What cannot be divided there must be; only what is
repeated by choice, because less moves then, is charged to the budget (``planner.search.work_budget``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.algebra.tiling import Replicate, Tiling
from planner.cost.compute import repeated_work, repeats
from planner.search.problem import Problem, SearchVariable


def overdraws(problem: Problem, composites: Sequence[Tiling]) -> bool:
    """True if more work is repeated than may be, because that is cheaper and not because an op could not be cut."""
    return sum(repeated_by_choice(problem, composites)) > problem.allowed_work


def repeated_by_choice(problem: Problem, composites: Sequence[Tiling]) -> list[int]:
    """By variable the work that is done again though it could be divided, that of copies added; 0 for tensors."""
    each = repeated_once(problem, composites)
    return [amount * times for amount, times in zip(each, problem.times_there, strict=True)]


def repeated_once(problem: Problem, composites: Sequence[Tiling]) -> list[int]:
    """The same of one copy, standing for itself."""
    firsts, group = problem.alike(composites)
    each = [_chosen(problem, problem.variables[first], composites[first]) for first in firsts]
    return [each[number] for number in group.tolist()]


def repeated_by(problem: Problem, op: str, strategy: Tiling) -> int:
    """The work of an op that is done again though it could be divided, if this is its strategy."""
    return _chosen(problem, problem.variables[problem.variable_of_op[op]], strategy)


def unsplit(problem: Problem, composites: Sequence[Tiling]) -> frozenset[int]:
    """Ops that repeat work at a cut where they cannot be split, and are too much work for that to be free."""
    firsts, group = problem.alike(composites)
    stuck = np.array([_forced(problem, problem.variables[first], composites[first]) > 1 for first in firsts])
    return frozenset(np.flatnonzero(stuck[group]).tolist())


def _chosen(problem: Problem, variable: SearchVariable, composite: Tiling) -> int:
    if variable.op is None:
        return 0
    amount = problem.works[variable.op.op.name]
    return repeated_work([(amount, variable.op, composite)]) - amount * (_forced(problem, variable, composite) - 1)


def _forced(problem: Problem, variable: SearchVariable, composite: Tiling) -> int:
    """How often an op is executed since it cannot be split: the ways of such cuts; 1 for negligible work."""
    if variable.op is None or problem.works[variable.op.op.name] <= problem.negligible_work:
        return 1
    forced = 1
    for prefix, placement, ways in composite.cut_by_cut():
        if isinstance(placement, Replicate):
            options = problem.extensions(variable, prefix, ways)
            if all(repeats(variable.op, option.placements[-1]) for option in options):
                forced *= ways
    return forced
