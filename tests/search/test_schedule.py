"""The lists of moves: each earns its place, and a search without it is noticed here."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import opdefs
from planner import zoo
from planner.search.decide import decide
from planner.search.decided import Decided
from planner.search.effort import EffortName
from planner.search.model.problem import Problem
from planner.search.moves.move import Ground, Move
from planner.search.request import SearchRequest
from planner.search.schedule import SCHEDULES, Schedule


def planned(name: str, workers: int, effort: EffortName) -> Decided:
    graph = zoo.build(name)
    return decide(graph, opdefs.standard().bind_all(graph), SearchRequest(workers, effort=effort))


def ground_of(name: str, cuts: tuple[int, ...]) -> Ground:
    graph, workers = zoo.build(name), 1
    for ways in cuts:
        workers *= ways
    problem = Problem(graph, opdefs.standard().bind_all(graph), workers, with_partial_sums=True)
    return Ground(problem, cuts, lambda inner, cuts: inner)


def without(schedule: Schedule, size: str, place: int) -> Schedule:
    """A schedule without one of its moves."""
    moves: tuple[Move, ...] = getattr(schedule, size)
    return replace(schedule, **{size: (*moves[:place], *moves[place + 1 :])})


def changed(effort: EffortName, schedule: Schedule) -> Mapping[EffortName, Schedule]:
    return MappingProxyType({**SCHEDULES, effort: schedule})
