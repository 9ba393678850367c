"""Fusion: improve a plan by solving all cuts together over plans near it.

Recursion decides one cut at a time and cannot take back an earlier one. Fusion offers every variable its present
composite, the same placements in another order of cuts, and every change of a single cut, solves the whole graph
exactly over these candidates, and goes on from the result until nothing gets better. The total never rises.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from planner.algebra.tiling import Tiling
from planner.cost.tables import Candidates
from planner.errors import InfeasibleError
from planner.search.eliminate import minimise
from planner.search.problem import Problem, Restriction, SearchVariable
from planner.search.recurse import Found

MAX_ROUNDS = 20
"""A bound on the rounds; in practice a plan is stable after two or three."""
_MAX_ENTRIES = 1 << 22
"""A bucket larger than this is not worth its time; smaller neighbourhoods are solved instead."""


def improve(
    problem: Problem,
    cuts: tuple[int, ...],
    restrict: Restriction,
    found: Found,
    progress: Callable[[str], None] = lambda line: None,
) -> Found:
    """Improves a plan until it is stable.

    Args:
        problem: the graph's variables and tables.
        cuts: the ways of each cut, outermost first.
        restrict: narrows the candidates of a variable.
        found: the plan to start from.
        progress: told what is being done.

    Returns:
        A plan that moves no more bytes.
    """
    if len(cuts) < 2:
        return found
    best = found
    for number in range(1, MAX_ROUNDS + 1):
        progress(f"improving the plan, round {number}: {best.moved_bytes:,} bytes")
        better = _round(problem, cuts, restrict, best)
        if better.moved_bytes >= best.moved_bytes:
            break
        best = better
    return best


def _round(problem: Problem, cuts: tuple[int, ...], restrict: Restriction, found: Found) -> Found:
    near = [
        _near(problem, variable, cuts, restrict, found.composites[variable.number]) for variable in problem.variables
    ]
    try:
        return _solve(problem, [tuple(dict.fromkeys(itertools.chain(*groups))) for groups in near], found)
    except InfeasibleError:
        pass
    # Too entangled for all at once: one kind of change after the other.
    best = found
    for group in range(1, len(cuts) + 2):
        near = [
            _near(problem, variable, cuts, restrict, best.composites[variable.number]) for variable in problem.variables
        ]
        best = _solve(problem, [tuple(dict.fromkeys((*groups[0], *groups[group]))) for groups in near], best)
    return best


def _solve(problem: Problem, candidates: Sequence[Candidates], found: Found) -> Found:
    solution = minimise([len(values) for values in candidates], problem.factors(candidates), _MAX_ENTRIES)
    if solution.total >= found.moved_bytes:
        return found
    composites = tuple(values[chosen] for values, chosen in zip(candidates, solution.values, strict=True))
    return replace(
        found,
        composites=composites,
        moved_bytes=solution.total,
        largest_table=max(found.largest_table, solution.largest_table),
    )


def _near(
    problem: Problem, variable: SearchVariable, cuts: tuple[int, ...], restrict: Restriction, composite: Tiling
) -> list[Candidates]:
    """The present composite; then its other orders; then, for each cut, every change of that cut alone."""
    orders = [
        Tiling(placements, cuts)
        for placements in dict.fromkeys(itertools.permutations(composite.placements))
        if placements != composite.placements
    ]
    groups: list[list[Tiling]] = [[composite], orders]
    start = Tiling((), ())
    for cut, ways in enumerate(cuts):
        before = Tiling(composite.placements[:cut], cuts[:cut])
        options = {
            option.placements[-1]: None
            for prefix in (before, start)
            for option in problem.extensions(variable, prefix, ways)
        }
        groups.append(
            [
                Tiling((*composite.placements[:cut], placement, *composite.placements[cut + 1 :]), cuts)
                for placement in options
                if placement != composite.placements[cut]
            ]
        )
    return [(composite,), *(_allowed(problem, variable, cuts, restrict, group) for group in groups[1:])]


def _allowed(
    problem: Problem, variable: SearchVariable, cuts: tuple[int, ...], restrict: Restriction, wanted: Sequence[Tiling]
) -> Candidates:
    """Those of the wanted composites that can be built cut by cut."""
    kept = []
    for composite in wanted:
        prefix = Tiling((), ())
        for placement, ways in zip(composite.placements, cuts, strict=True):
            options = restrict(variable, problem.extensions(variable, prefix, ways))
            prefix = prefix.extend(placement, ways)
            if prefix not in options:
                break
        else:
            kept.append(composite)
    return tuple(kept)
