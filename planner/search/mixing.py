"""One plan up to a place in the network and another behind it: where equal layers cannot all repeat work, but some may.

At a price on repeated work, equal layers of a deep network repeat it all or not at all, and the budget lies between. So
of a plan that overdraws and one that does not, the first is taken for as many layers as the budget allows, the second
for the others, and where they meet each variable may be what it is in either.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from planner.errors import InfeasibleError
from planner.search.choices import Choices
from planner.search.parts import in_a_row
from planner.search.problem import Problem
from planner.search.recurse import Found
from planner.search.repetition import overdraws

_SEAM = 150
"""Variables where plans meet that may be what they are in either: about a block of a residual network."""
_NEAR = 32
"""The place where they meet is sought to so many variables."""
_MAX_ENTRIES = 1 << 20
"""A bucket larger than this is not worth its time."""


def mixed(problem: Problem, over: Found, under: Found) -> Found:
    """The best mixture of two plans that keeps to the budget of repeated work.

    Args:
        problem: the graph's variables and tables.
        over: a plan that repeats too much.
        under: a plan that does not; what is returned if no mixture is better.
    """
    pairs = zip(over.composites, under.composites, strict=True)
    apart = [variable for variable, (first, second) in enumerate(pairs) if first != second]
    place = {variable: position for position, variable in enumerate(apart)}
    joined = {(link.tensor, link.op) for link in problem.links if link.tensor in place and link.op in place}
    row = in_a_row([1.0] * len(apart), [(place[tensor], place[op]) for tensor, op in sorted(joined)])
    best = under
    for order in ([apart[position] for position in row], [apart[position] for position in reversed(row)]):
        least, most = 0, len(order)
        while most - least > _NEAR:
            middle = (least + most) // 2
            found = _met(problem, over, under, order, middle)
            if found is None or overdraws(problem, found.composites):
                most = middle
                continue
            least = middle
            if found.moved_bytes < best.moved_bytes and problem.are_local(found.composites):
                best = found
    return best


def _met(problem: Problem, over: Found, under: Found, order: Sequence[int], count: int) -> Found | None:
    """The mixture in which so many variables are what they are in the first plan; None if it cannot be solved."""
    start, end = max(0, count - _SEAM // 2), count + _SEAM // 2
    candidates = [(composite,) for composite in under.composites]
    for variable in order[:start]:
        candidates[variable] = (over.composites[variable],)
    free = {variable: (under.composites[variable], over.composites[variable]) for variable in order[start:end]}
    choices = Choices.of(
        [problem.intern(free.get(variable, one)) for variable, one in enumerate(candidates)],
    )
    with contextlib.suppress(InfeasibleError):
        composites, solution = problem.solve(choices, _MAX_ENTRIES)
        return replace(under, composites=composites, moved_bytes=solution.total)
    return None
