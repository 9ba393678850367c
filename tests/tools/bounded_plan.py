"""A plan with its bound, by the search's own move."""

from planner.search.effort import NORMAL_BOUND, BoundLimits
from planner.search.model.found import Found
from planner.search.model.problem import Problem, Restriction, no_restriction
from planner.search.moves.bounding import LowerBound
from planner.search.moves.move import Ground, Known, made


def bounded(
    problem: Problem,
    cuts: tuple[int, ...],
    start: Found,
    limits: BoundLimits = NORMAL_BOUND,
    restrict: Restriction = no_restriction,
) -> Found:
    """The best plan known after bounding, from a first one.

    Args:
        problem: the graph's variables and tables.
        cuts: the ways of each cut, outermost first.
        start: a plan.
        limits: how much work the bound may be.
        restrict: narrows the candidates of a variable.
    """
    ground = Ground(problem, cuts, lambda inner, cuts: restrict)
    return made((lambda ground, known: Known((start,)), LowerBound(limits)), ground)
