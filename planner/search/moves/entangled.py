"""A plan of a graph that is too entangled for exact elimination.

All tensors are given a tiling: that of data parallelism, or their first one, or replication, whichever costs less when
each op then has its best strategy, which is solved exactly, op by op. From there some variables stay what they are and
the others are solved exactly, all together; then others stay; until nothing gets better. Those that stay are the fewest
that can be found so that no table becomes too large: mostly what many parts of the graph share, such as a weight that
all layers read. The result costs no more than where it began, but nothing bounds how much less a plan could cost.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

from planner.algebra.tiling import Partial, Replicate, Tiling
from planner.cost.tables import Candidates
from planner.errors import InfeasibleError, ModelError
from planner.progress import Progress, silent
from planner.search.effort import ENTANGLED_ROUNDS, FEWER_ENTRIES, MAX_TABLE_ENTRIES, MOVE_ENTRIES, STAYING_AT_ONCE
from planner.search.exact.choices import Choices
from planner.search.exact.eliminate import Solution
from planner.search.exact.order import find_order
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
    stayed: Counter[int] = Counter()
    staying: frozenset[int] = frozenset()
    for _ in range(ENTANGLED_ROUNDS):
        most_entries = min(max_table_entries, MOVE_ENTRIES)
        tried, better, other = _solve_others(problem, choices, tilings, stayed, most_entries, check)
        stayed.update(tried)
        staying = staying or tried
        if other.total >= solution.total or not problem.is_possible(better):
            break
        tilings, solution, staying = better, other, tried
    problem.decided_apart = max(problem.decided_apart, len(staying))
    return tilings, solution


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
    kept = preference(variable, candidates)
    return next((one for one in kept if not isinstance(one.placements[-1], Partial)), kept[0])


def _solve_others(
    problem: Problem,
    choices: Choices,
    tilings: Sequence[Tiling],
    stayed: Counter[int],
    most_entries: int,
    check: Callable[[], None],
) -> tuple[frozenset[int], tuple[Tiling, ...], Solution]:
    """The best plan with as many variables as need be as they are; these, the plan, and its solution."""
    looked_for = most_entries
    while True:
        staying = _hindering(problem, choices, looked_for, stayed)
        smaller = problem.with_settled(staying)
        lists = [choices[number] for number in range(len(choices))]
        for number in staying:
            lists[number] = problem.intern((tilings[number],))
        try:
            found, solution = smaller.solve(Choices.of(lists), most_entries, check)
        except InfeasibleError:
            looked_for //= FEWER_ENTRIES  # with every variable settled there is no table at all
        else:
            problem.eliminated_entries += smaller.eliminated_entries
            return staying, found, solution


def _hindering(problem: Problem, choices: Choices, most_entries: int, stayed: Counter[int]) -> frozenset[int]:
    """Variables without which all others can be eliminated: of those that stayed least often the most entangled."""
    sizes = choices.sizes.tolist()
    found: set[int] = set()
    scopes: Collection[tuple[int, ...]] = problem.scopes
    while True:
        scopes = [tuple(one for one in scope if sizes[one] > 1 and one not in found) for scope in scopes]
        order = find_order(sizes, scopes, problem.content, most_entries=most_entries)
        if not order.open:
            return frozenset(found)
        scopes = [scope for _, scope in order.open]
        near: dict[int, set[int]] = {}
        for scope in scopes:
            for variable in scope:
                near.setdefault(variable, set()).update(scope)
        ranked = sorted(near, key=lambda variable: (stayed[variable], -len(near[variable]), variable))
        found.update(ranked[: 1 + len(ranked) // STAYING_AT_ONCE])
