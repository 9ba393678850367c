"""Recursive search (Tofu, section 5.2; SoyBean, section 4): one cut at a time, each solved exactly.

Every cut extends the tilings found so far, and its tables count the bytes among all workers of all cuts so far, so the
last cut's total is what the plan costs. For one cut the result is the optimum; for more it need not be
(docs/search.md). A graph that is too entangled to be solved exactly is solved as far as can be.
"""

from __future__ import annotations

from functools import partial

from planner.algebra.tiling import UNCUT, Tiling
from planner.errors import InfeasibleError
from planner.progress import Progress, silent
from planner.search.model.found import Found
from planner.search.model.problem import Problem, Restriction
from planner.search.moves.entangled import solved
from planner.stop import Stop, go_on


def search_recursively(
    problem: Problem,
    cuts: tuple[int, ...],
    restrict: Restriction,
    progress: Progress = silent,
    stop: Stop | None = None,
) -> Found:
    """Finds a tiling for every tensor and op.

    Args:
        problem: the graph's variables and tables.
        cuts: the ways of each cut, outermost first.
        restrict: narrows the candidates of a variable; must leave at least one.
        progress: told what is being done.
        stop: asked before each cut, and within it, whether the search is to end; None: it is not.

    Raises:
        InfeasibleError: what must be partial cannot be.
        StoppedError: the search is to end.
    """
    tilings: tuple[Tiling, ...] = (UNCUT,) * len(problem.variables)
    total, largest = 0, 1
    for number, ways in enumerate(cuts, start=1):
        if stop is not None:
            stop.check()
        progress(f"deciding cut {number} of {len(cuts)}")
        offer = partial(problem.proposals, ways=ways)
        check = go_on if stop is None else stop.check
        tilings, solution = solved(problem, problem.choices(tilings, offer, restrict), progress, check=check)
        total, largest = solution.total, max(largest, solution.largest_table)
        if not problem.is_possible(tilings):
            raise InfeasibleError(
                f"there is no plan in which all tensors that are to be P are so at cut {number}, of {ways} ways",
                hint="what makes such a tensor is divided along what it sums over, and what reads it is P as well",
            )
    if not cuts:  # one worker moves nothing, but tables may count something else, such as what is held
        total = problem.cost(tilings)
    return Found(tilings, total, largest)
