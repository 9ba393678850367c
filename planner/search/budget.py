"""Plans kept to the budget of repeated work.

Which ops may be repeated is settled before it is known how often each of them is; a plan may repeat more in all than
is allowed. Then it is mended: ops whose repetition saves little for the work that it is may not be repeated, and are
divided in one of the ways that leave their other cuts as they are; and the rest is improved again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from planner.algebra.tiling import UNCUT, Partial, Replicate, Tiling
from planner.cost.tables import Candidates
from planner.errors import InfeasibleError
from planner.search.entangled import solved
from planner.search.improve import Improve, improve
from planner.search.network import Link
from planner.search.problem import Problem, Restriction, SearchVariable
from planner.search.recurse import Found, search_recursively
from planner.search.repetition import overdraws, repeated_by_choice

_ROUNDS = 8
"""After so many rounds no op is repeated at all, but those that cannot be divided."""
_MOST_WAYS = 32
"""With so many ways to divide an op, its further cuts are made along the first dim that is large enough: over many cuts
the ways are too many to be looked at."""
_MARGIN = 1.25
"""So many times what is repeated too much is divided in a round, since other ops may come to be repeated instead."""


def within_budget(
    problem: Problem,
    cuts: tuple[int, ...],
    restrict: Restriction,
    found: Found,
    progress: Callable[[str], None] = lambda line: None,
    *,
    improved: Improve = improve,
) -> Found:
    """The plan itself, if it repeats no more work than allowed, or one near it that does not.

    Args:
        problem: the graph's variables and tables.
        cuts: the ways of each cut, outermost first.
        restrict: narrows the candidates of a variable.
        found: the plan.
        progress: told what is being done.
        improved: improves what was mended.
    """
    divided: frozenset[str] = frozenset()
    for number in range(_ROUNDS + 1):
        if not overdraws(problem, found.composites):
            break
        progress(f"dividing what is repeated too often: {found.moved_bytes:,} bytes")
        if number < _ROUNDS:
            divided |= _least_worth(problem, found, divided)
        else:
            divided = frozenset(bound.op.name for bound in problem.ops)
        smaller = problem.dividing(divided)
        try:
            if len(cuts) > 1:
                mended = _mended(smaller, restrict, found)
                found = improved(smaller, cuts, restrict, mended, progress)
            else:  # exact, and so at least as good as all that is near the plan
                found = search_recursively(smaller, cuts, restrict, progress)
        except InfeasibleError:  # what the user wants to be partial is read by ops that are repeated then
            return found if number else improved(problem, cuts, restrict, found, progress)
        problem.eliminated_entries += smaller.eliminated_entries
    return found


def _least_worth(problem: Problem, found: Found, divided: frozenset[str]) -> frozenset[str]:
    """Ops whose repetition saves the fewest bytes for the work that it is: as many as are repeated too much.

    What one saves is looked at with everything else as it is. Ops that may not be repeated any more, ``divided``, are
    left out: where they are repeated, they could not be cut.
    """
    repeated = repeated_by_choice(problem, found.composites)
    already = {problem.variable_of_op[name] for name in divided}
    links: dict[int, list[Link]] = {
        number: [] for number, amount in enumerate(repeated) if amount and number not in already
    }
    for link in problem.links:
        if link.op in links:
            links[link.op].append(link)
    saved = _saved(problem, found.composites, links)
    copies = Counter(problem.variable_of_op.values())
    once = {number: repeated[number] // problem.times_there[number] for number in links}
    price = {number: saved[number] / (once[number] * copies[number]) for number in links}
    left = _MARGIN * (sum(repeated) - problem.allowed_work)
    chosen: set[int] = set()
    # Of equal prices the first ops count: a run of equal blocks may be divided up to some block.
    for number in sorted(price, key=lambda number: (price[number], number)):
        if left <= 0:
            break
        left -= repeated[number]
        chosen.add(number)
    return frozenset(name for name, number in problem.variable_of_op.items() if number in chosen)


def _saved(problem: Problem, composites: Sequence[Tiling], links: Mapping[int, Sequence[Link]]) -> dict[int, int]:
    """The bytes that the repetition of each op saves, with all tensors as they are.

    Args:
        problem: the graph's variables and tables.
        composites: of all variables.
        links: by op, those of its inputs and outputs.
    """
    group = problem.alike(composites)[1].tolist()
    key_of = {
        number: (group[number], *[(link.kind, link.times, group[link.tensor]) for link in near])
        for number, near in links.items()
    }
    asked: dict[object, list[tuple[Link, Candidates, Candidates]]] = {}
    for number, near in links.items():
        if key_of[number] not in asked:
            own = composites[number]
            strategies = problem.intern((own, *_divided(problem, problem.variables[number], own)))
            tilings = [problem.intern((composites[link.tensor],)) for link in near]
            asked[key_of[number]] = [(link, tiling, strategies) for link, tiling in zip(near, tilings, strict=True)]
    tables = iter(problem.made([one for alike in asked.values() for one in alike]))
    saved: dict[object, int] = {}
    for key, alike in asked.items():
        total = sum(next(tables)[0] for _ in alike)
        saved[key] = int(min(total[1:], default=total[0]) - total[0])
    return {number: saved[key] for number, key in key_of.items()}


def _divided(problem: Problem, variable: SearchVariable, composite: Tiling) -> list[Tiling]:
    """Composites in which a cut that repeats the op divides it instead, wherever it can, and the others stay.

    What is partial may be divided instead, too, for its neighbours may not be partial any more.
    """
    if not any(isinstance(placement, Replicate | Partial) for placement in composite.placements):
        return [composite]
    found = [UNCUT]
    for placement, ways in zip(composite.placements, composite.ways, strict=True):
        most = 1 if len(found) >= _MOST_WAYS else None
        longer: list[Tiling] = []
        for prefix in found:
            proposed = problem.proposals(variable, prefix, ways)
            same = prefix.extend(placement, ways)
            others = [option for option in proposed if not isinstance(option.placements[-1], Partial)]
            splits = [option for option in others if not isinstance(option.placements[-1], Replicate)]
            if isinstance(placement, Partial):
                longer += [option for option in proposed if option == same] + (splits[:most] or others)
            elif same in (splits if variable.op is not None else others):
                longer.append(same)
            else:
                longer += splits[:most] or others
        found = longer
    return found


def _mended(problem: Problem, restrict: Restriction, found: Found) -> Found:
    """The best plan with everything as it is that the problem lets be so.

    Raises:
        InfeasibleError: there is none.
    """

    def offer(variable: SearchVariable, composite: Tiling) -> Candidates:
        if variable.op is not None and not problem.may_replicate[variable.op.op.name]:
            return problem.intern(tuple(_divided(problem, variable, composite)))
        more = _divided(problem, variable, composite) if composite.has_partial else ()
        return problem.intern((composite, *more))

    composites, solution = solved(problem, problem.choices(found.composites, offer, restrict))
    if not problem.is_possible(composites):
        raise InfeasibleError("what is to be partial cannot be, without repeating work")
    return replace(found, composites=composites, moved_bytes=solution.total)
