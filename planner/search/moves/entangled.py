"""A plan of a graph that is too entangled for exact elimination.

All tensors are given a tiling: that of data parallelism, or their first one, or replication, whichever costs less when
each op then has its best strategy, which is solved exactly, op by op. From there some variables stay what they are and
the others are solved exactly, all together; then others stay; until nothing gets better. Those that stay are found in
one elimination, which gives a variable a value where no table would be small enough: mostly what many parts of the
graph share, such as a weight that all layers read. The result costs no more than where it began; how much less a plan
could cost, a bound says (``planner.search.bound``), and nothing here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import numpy as np

from planner.algebra.tiling import Partial, Replicate, Tiling
from planner.cost.tables import Candidates
from planner.errors import InfeasibleError, ModelError
from planner.progress import Progress, silent
from planner.search.effort import ENTANGLED_GAIN, ENTANGLED_ROUNDS, MAX_TABLE_ENTRIES, PART_ENTRIES
from planner.search.exact.choices import Choices
from planner.search.exact.eliminate import Solution
from planner.search.model.problem import Problem, Restriction, SearchVariable, no_restriction
from planner.search.moves import restrictions
from planner.stop import go_on


def solved(
    problem: Problem,
    choices: Choices,
    progress: Progress = silent,
    *,
    max_table_entries: int = MAX_TABLE_ENTRIES,
    check: Callable[[], None] = go_on,
) -> tuple[tuple[Tiling, ...], Solution]:
    """The least cost over all choices of a candidate for every variable; a low one, where the least cannot be found.

    ``Problem.decided_apart`` then says how many variables stayed what they were when the others were decided last.

    Args:
        problem: the graph's variables and tables.
        choices: each variable's candidates, interned.
        progress: told what is being done.
        max_table_entries: how large a bucket may be, if the least can be found.
        check: called between parts of the work; what it raises ends it.

    Returns:
        The chosen tilings, and the solution that they stand for.
    """
    with contextlib.suppress(InfeasibleError):
        return problem.solve(choices, max_table_entries, check)
    progress("deciding an entangled graph in parts")
    starts = [*_starts(problem, choices, check)]
    tilings, solution = min(starts, key=lambda start: (not problem.is_possible(start[0]), start[1].total))
    entries = min(max_table_entries, PART_ENTRIES)
    tilings, better, apart = solved_in_parts(problem, choices, tilings, solution.total, entries, check)
    problem.decided_apart = max(problem.decided_apart, apart)
    return tilings, better or solution


def solved_in_parts(
    problem: Problem,
    choices: Choices,
    tilings: tuple[Tiling, ...],
    cost: int,
    most_entries: int,
    check: Callable[[], None] = go_on,
) -> tuple[tuple[Tiling, ...], Solution | None, int]:
    """A plan that costs no more than a given one: few variables stay what they are, then others, until nothing helps.

    Args:
        problem: the graph's variables and tables.
        choices: each variable's candidates, interned; those of the given plan are among them.
        tilings: the given plan.
        cost: of that.
        most_entries: how large a bucket may be.
        check: called between parts of the work; what it raises ends it.

    Returns:
        The chosen tilings, and the solution that they stand for; the given ones and None where nothing helps. And how
        many variables stayed what they were.
    """
    solution: Solution | None = None
    stayed = np.zeros(len(choices), dtype=np.int64)
    apart = 0
    for _ in range(ENTANGLED_ROUNDS):
        staying, subproblem = problem.settling(choices.sizes, stayed, most_entries)
        apart = apart or len(staying)
        lists = [choices[number] for number in range(len(choices))]
        for number in staying:
            lists[number] = problem.intern((tilings[number],))
        better, attempt = subproblem.solve(Choices.of(lists), MAX_TABLE_ENTRIES, check)
        problem.eliminated_entries += attempt.entries
        if attempt.total >= cost or not problem.is_possible(better):
            break
        gain = cost - attempt.total
        tilings, solution, cost, apart = better, attempt, attempt.total, len(staying)
        if gain <= ENTANGLED_GAIN * cost:
            break
        stayed[[*staying]] += 1
    return tilings, solution, apart


def _starts(
    problem: Problem, choices: Choices, check: Callable[[], None] = go_on
) -> Iterator[tuple[tuple[Tiling, ...], Solution]]:
    """The best strategy of every op under several tilings of all tensors."""
    preferences: list[Restriction] = [
        no_restriction,
        restrictions.keeping(lambda _, placement: placement == Replicate()),
    ]
    with contextlib.suppress(ModelError):  # a model without a batch has no such plan
        preferences.append(restrictions.data_parallel(problem))
    tensors = [variable for variable in problem.variables if variable.op is None]
    each_op = problem.with_settled({variable.number for variable in tensors})
    for preference in map(restrictions.preferring, preferences):
        lists = [choices[number] for number in range(len(choices))]
        for variable in tensors:
            lists[variable.number] = problem.intern((_first(preference, variable, choices[variable.number]),))
        yield each_op.solve(Choices.of(lists), check=check)
    problem.eliminated_entries += each_op.eliminated_entries


def _first(preference: Restriction, variable: SearchVariable, candidates: Candidates) -> Tiling:
    """The preferred candidate, and no partial sum if there is another: what reads one must be partial as well."""
    options = preference(variable, candidates)
    return next((option for option in options if not isinstance(option.placements[-1], Partial)), options[0])
