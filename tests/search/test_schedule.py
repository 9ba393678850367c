"""The lists of moves: each earns its place, and a search without it is noticed here."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest

import opdefs
from planner import zoo
from planner.algebra.tiling import UNCUT
from planner.artifacts.plan import Plan
from planner.cost.tables import Candidates
from planner.errors import InfeasibleError
from planner.search import decide as deciding
from planner.search.decide import decide
from planner.search.effort import EffortName
from planner.search.model.problem import Problem, Restriction, SearchVariable, no_restriction
from planner.search.moves.bounding import Bound
from planner.search.moves.grow import Fuse, Grow, once, until_stable
from planner.search.moves.megatron import tensor_parallel
from planner.search.moves.move import Ground, Known, Move, made
from planner.search.moves.restrictions import data_parallel
from planner.search.moves.starts import all_others, freely, of_transformers
from planner.search.schedule import MANY_OPS, QUICK, SCHEDULES, Schedule
from planner.zoo import mlp


def planned(name: str, workers: int, effort: EffortName) -> Plan:
    graph = zoo.build(name)
    return decide(graph, opdefs.standard().bind_all(graph), workers, effort=effort).plan


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
