"""Plans and their certified gaps against an independent solver (HiGHS) of the same tables, on random graphs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bounded_plan import bounded
from fast_suite import chosen, draws, examples
from integer_programme import least_of_all
from planner import opdefs
from planner.cost.seconds.tables import TimeTables
from planner.cost.seconds.timed import TimedTables
from planner.cost.tables import CostTables
from planner.features.zoo import models as zoo
from planner.features.zoo.models import mlp
from planner.graph.core.model import DType, Graph
from planner.machine.topology_file import Device, DeviceGraph, DeviceLink, Level, Topology
from planner.search.decide import decide
from planner.search.effort import BoundLimits
from planner.search.model.cuts import cuts_of_levels
from planner.search.model.problem import Problem, no_restriction
from planner.search.moves.fusion import improve
from planner.search.moves.recursion import search_recursively
from planner.search.request import SearchRequest
from random_graphs import graphs, images

CUTS = ((2, 2), (3, 2), (2, 3), (2, 2, 2))
DESCRIPTIONS = opdefs.standard()
DEVICE = Device(2**30, ((DType.FLOAT32, 1e9),), 1e9)


def check(graph: Graph, cuts: tuple[int, ...], limits: BoundLimits) -> float:
    """Holds a certificate against the integer programme; the certified gap."""
    problem = Problem(graph, opdefs.standard().bind_all(graph), int(np.prod(cuts)), with_nests=True)
    start = improve(problem, cuts, no_restriction, search_recursively(problem, cuts, no_restriction))
    found = bounded(problem, cuts, start, limits)
    least = least_of_all(problem, cuts)
    assert found.lower is not None
    assert found.lower <= least <= found.cost <= start.cost
    assert problem.cost(found.tilings) == found.cost
    if found.cost == found.lower:
        return 0.0
    return found.cost / found.lower - 1 if found.lower else inf


@examples(25)
@given(graphs(), st.sampled_from(CUTS[:3]))
def test_a_certified_plan_is_as_good_as_an_integer_programme_finds(graph: Graph, cuts: tuple[int, ...]) -> None:
    assert check(graph, cuts, BoundLimits()) == 0.0


@pytest.mark.slow
@examples(700)
@given(graphs(), st.sampled_from(CUTS))
def test_many_certified_plans(graph: Graph, cuts: tuple[int, ...]) -> None:
    assert check(graph, cuts, BoundLimits()) == 0.0


@examples(15)
@given(graphs(), st.sampled_from(CUTS[:3]), st.booleans())
def test_a_bound_of_little_effort_holds_as_well(graph: Graph, cuts: tuple[int, ...], is_coarse: bool) -> None:
    few = 1_000_000
    limits = BoundLimits(rounds=1, exact_entries=1, near_entries=few, region_entries=few)
    check(graph, cuts, replace(limits, large_entries=0, large_rounds=2, joins_rounds=True) if is_coarse else limits)


def test_a_problem_that_is_too_large_gets_no_bound_and_keeps_its_plan() -> None:
    graph = mlp(2, 24, 36)
    problem = Problem(graph, opdefs.standard().bind_all(graph), 4)
    start = search_recursively(problem, (2, 2), no_restriction)
    assert bounded(problem, (2, 2), start, BoundLimits(table_entries=10)) == start


PEERS = [("mlp-4x8192", 402.653184), ("gpt-2x1024", 1141.08012)]


@pytest.mark.parametrize(("name", "megabytes"), chosen(PEERS, fast=PEERS[:1]))
def test_peers_workloads_are_solved_exactly(name: str, megabytes: float) -> None:
    """And cost no more than the best hand plan moves, but for the learning rate that each worker reads."""
    graph = zoo.build(name)
    problem = Problem(graph, opdefs.standard().bind_all(graph), 8)
    start = search_recursively(problem, (2, 2, 2), no_restriction)
    found = bounded(problem, (2, 2, 2), start)
    assert found.cost == found.lower
    assert sum(problem.link_bytes(found.tilings)) <= round(megabytes * 1e6)
    assert found.cost <= round(megabytes * 1e6) + 16


@dataclass
class Sample:
    """Plans of random graphs beside the least of all plans."""

    plans: int = 0
    best: int = 0
    """At the optimum."""

    def take(self, graph: Graph, levels: tuple[int, ...], tables: CostTables) -> None:
        """Plans a graph and holds the plan against the integer programme; its certificate must be true and tight.

        Args:
            graph: a small one.
            levels: ways of each level of the machine.
            tables: of bytes, or of time.
        """
        workers, ops = int(np.prod(levels)), DESCRIPTIONS.bind_all(graph)
        assume(workers <= max(tensor.elements for tensor in graph.tensors.values()))
        plan = decide(graph, ops, SearchRequest(workers, cuts=cuts_of_levels(levels), tables=tables))
        least = least_of_all(Problem(graph, ops, workers, tables=tables, with_nests=True), cuts_of_levels(levels))
        assert plan.certified_gap is not None, "small graphs have certificates"
        assert plan.certified_gap <= 0.05
        assert least <= plan.cost <= least * (1 + plan.certified_gap) * (1 + 1e-9)
        self.plans += 1
        self.best += plan.cost == least


def two_levels(levels: tuple[int, ...]) -> CostTables:
    """Tables of time on a machine of slow links between groups of workers and fast ones within."""
    slow, fast = levels
    machine = Topology("two", DEVICE, (Level("slow", slow, 1e9, 1e-6, shared_by=fast), Level("fast", fast, 8e9, 1e-7)))
    plain = CostTables()
    return TimedTables(plain, TimeTables(machine, cuts_of_levels(levels)))


def two_kinds(levels: tuple[int, ...]) -> CostTables:
    """Tables of time on devices of which every second one is half as fast, or all but the first."""
    workers = int(np.prod(levels))
    slow = replace(DEVICE, compute_flop_per_s=tuple((dtype, speed / 2) for dtype, speed in DEVICE.compute_flop_per_s))
    devices = tuple(DEVICE if number == 0 or (workers == 4 and number == 2) else slow for number in range(workers))
    links = tuple(DeviceLink((number, workers), 8e9, 1e-7) for number in range(workers))
    machine = DeviceGraph("kinds", devices, links, ("switch",))
    return TimedTables(CostTables(), TimeTables(machine, cuts_of_levels(levels)))


def convolutions(count: int) -> Sample:
    """Random networks of convolutions on 2, 3, 4 and 6 workers, by bytes."""
    sample = Sample()

    @settings(max_examples=count)
    @given(images(), st.sampled_from([(2,), (3,), (4,), (6,), (3, 2)]))
    def take(graph: Graph, levels: tuple[int, ...]) -> None:
        sample.take(graph, levels, CostTables())

    take()
    return sample


def on_two_levels(count: int) -> Sample:
    """Random graphs on machines of two levels, by time."""
    sample = Sample()

    @settings(max_examples=count)
    @given(graphs(), st.sampled_from([(2, 2), (3, 2), (2, 3)]))
    def take(graph: Graph, levels: tuple[int, ...]) -> None:
        sample.take(graph, levels, two_levels(levels))

    take()
    return sample


def on_two_kinds(count: int) -> Sample:
    """Random networks on one fast and two slow devices, and on two of each, by time; parts may be in proportion."""
    sample = Sample()

    @settings(max_examples=count)
    @given(graphs(), st.sampled_from([(3,), (2, 2)]))
    def take(graph: Graph, levels: tuple[int, ...]) -> None:
        tables = two_kinds(levels)
        assert any(tables.shares)
        sample.take(graph, levels, tables)

    take()
    return sample


@pytest.mark.parametrize("draw", [convolutions, on_two_levels, on_two_kinds])
def test_plans_are_the_best_there_are(draw: Callable[[int], Sample]) -> None:
    sample = draw(10)
    assert sample.best >= 0.95 * sample.plans > 0


@pytest.mark.parametrize("count", draws(100, 500))
@pytest.mark.parametrize("draw", [convolutions, on_two_levels, on_two_kinds])
def test_of_many_plans_nearly_all_are_the_best_there_are(draw: Callable[[int], Sample], count: int) -> None:
    sample = draw(count)
    assert sample.best >= 0.95 * sample.plans > 0.6 * count
