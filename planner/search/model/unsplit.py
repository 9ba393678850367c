"""Ops that could not be split at some cut, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.algebra.tiling import Replicate, Shard, Tiling
from planner.search.effort import UNSPLIT_SHARE
from planner.search.model.problem import Problem, SearchVariable


def unsplit(problem: Problem, tilings: Sequence[Tiling]) -> frozenset[int]:
    """Ops that all groups of some cut execute alike, since no dim of them can be cut there, and that is not negligible.

    Args:
        problem: the graph's variables and tables.
        tilings: of all variables.

    Returns:
        Their variables.
    """
    firsts, group = problem.alike(tilings)
    stuck = np.array([_is_stuck(problem, problem.variables[first], tilings[first]) for first in firsts], dtype=bool)
    if not stuck.any():
        return frozenset()
    least = UNSPLIT_SHARE * problem.cost(tilings)
    charged = dict.fromkeys(np.flatnonzero(stuck[group]).tolist(), 0)
    for link, amount in zip(problem.charges, problem.op_charges(tilings), strict=True):
        if link.op in charged:
            charged[link.op] += amount
    return frozenset(number for number, amount in charged.items() if amount > least)


def _is_stuck(problem: Problem, variable: SearchVariable, tiling: Tiling) -> bool:
    return variable.op is not None and any(
        isinstance(placement, Replicate)
        and not any(isinstance(longer.placements[-1], Shard) for longer in problem.extensions(variable, prefix, ways))
        for prefix, placement, ways in tiling.cut_by_cut()
    )
