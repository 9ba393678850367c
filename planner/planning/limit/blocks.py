"""Blocks of a plan that fits are solved exactly, each variable being what it is in one of the plans that were tried.

Prices of memory are the same all over the graph, and lead to the corners of a hull; where two plans differ in one part
that hangs together, mixing them part by part (``planner.planning.limit.mixing``) has no choice. Within a block, all
other variables being as they are, memory may cost less than that, or nothing: so what the limit leaves is used up.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence

from planner.errors import InfeasibleError
from planner.search.decision import Decision
from planner.search.effort import MOVE_ENTRIES
from planner.search.exact.choices import Choices
from planner.search.model.problem import Problem


def improve_blocks(
    best: Decision,
    plans: Sequence[Decision],
    problems: Sequence[Problem],
    most_blocks: int,
    take: Callable[[Decision], bool],
    check: Callable[[], None],
) -> None:
    """Looks for cheaper plans, block by block.

    Args:
        best: the plan that is made better.
        plans: what a variable is in one of these, it may be.
        problems: of the graph; the first with tables of what is to be small, the others with prices of memory besides.
        most_blocks: that are solved.
        take: told of plans that are cheaper by the first one's tables; whether one fits, and is the best now.
        check: called between parts of the work; what it raises ends it.
    """
    plain = problems[0]
    different = zip(*map(plain.values_of, plans), strict=True)
    offered = [plain.intern(tuple(dict.fromkeys(tilings))) for tilings in different]
    current = plain.values_of(best)
    cost = plain.cost(current)
    for block in itertools.islice(blocks(plain, [len(candidates) > 1 for candidates in offered]), most_blocks):
        for problem in problems:
            choices = Choices.of(
                [offered[index] if index in block else plain.intern((tiling,)) for index, tiling in enumerate(current)]
            )
            with contextlib.suppress(InfeasibleError):  # too entangled
                solution, _ = problem.solve(choices, MOVE_ENTRIES, check)
                less = plain.cost(solution)
                if less < cost and take(best.with_values(plain, solution)):
                    current, cost = solution, less


def blocks(problem: Problem, is_free: Sequence[bool]) -> Iterator[frozenset[int]]:
    """The half of the free variables of a problem that is nearest to each of them; no block twice.

    Args:
        problem: which variables have a table together.
        is_free: by variable whether it has a choice; ways lead through such ones only.
    """
    near: dict[int, dict[int, None]] = {}
    for link in problem.links:
        if is_free[link.tensor] and is_free[link.op]:
            near.setdefault(link.tensor, {})[link.op] = None
            near.setdefault(link.op, {})[link.tensor] = None
    half = (sum(is_free) + 1) // 2
    seen: set[frozenset[int]] = set()
    for variable in itertools.compress(range(len(is_free)), is_free):
        reached = {variable: None}
        for member in (queue := [variable]):
            for neighbour in near.get(member, ()):
                if neighbour not in reached and len(reached) < half:
                    reached[neighbour] = None
                    queue.append(neighbour)
        block = frozenset(reached)
        if block not in seen:
            seen.add(block)
            yield block
