"""Plans within a residence: against trying all, and against an independent solver (HiGHS) of the same tables."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array, lil_array

from fast_suite import chosen
from planner import opdefs
from planner.algebra.tiling import Tiling
from planner.cost.priced import PricedTables
from planner.cost.residence import Residence
from planner.cost.tables import CostTables
from planner.graph.model import Graph
from planner.search.decide import decide
from planner.search.memory.branches import Answer, Branched, Budget, Charges, Column, Prices, Spans, Variables, branched
from planner.search.memory.nearby import Nearby
from planner.search.request import SearchRequest
from planner.tdl.bind import BoundOp
from planner.zoo import mlp

HIGHEST = Fraction(1024)
MOMENTS = 2
Point = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Objective, residence by moment, and bytes by variable."""


@st.composite
def every_plan(draw: st.DrawFn) -> list[Point]:
    small = st.integers(0, 40)
    point = st.tuples(small, st.tuples(*[small] * MOMENTS), st.tuples(*[st.integers(0, 5)] * 3))
    return draw(st.lists(point, min_size=1, max_size=20, unique_by=lambda one: one[2]))


def column(point: Point) -> Column[Point]:
    return Column(point, point[0], np.array(point[1]), np.array(point[2]))


def search(
    points: Sequence[Point], room: int, refused: frozenset[Point], most: int = 10**6, *, are_alike: bool = False
) -> Branched[Point]:
    """Searches all points; ``are_alike``: variables are of one kind, and may be divided by what they take together."""

    def solve(prices: Prices, spans: Spans, charges: Charges) -> Answer[Point] | None:
        inside = [point for point in points if column(point).is_in(spans)]
        if not inside:
            return None

        def charged(point: Point) -> Fraction:
            held = sum((price * point[1][at] for at, price in prices.items()), Fraction(0))
            return point[0] + held + sum((price * point[2][at] for at, price in charges.items()), Fraction(0))

        best = min(inside, key=charged)
        return Answer(column(best), charged(best))

    def accept(one: Column[Point]) -> bool:
        return one.plan not in refused

    kind = np.full(3, 7 if are_alike else -1)
    variables = Variables(np.zeros(3, dtype=np.int64), np.full(3, MOMENTS), kind, np.ones(3, dtype=np.int64))
    return branched([column(points[0])], solve, np.full(MOMENTS, room), variables, 1000, accept, HIGHEST, Budget(most))


def cheapest(points: Sequence[Point], room: int) -> int:
    return min((point[0] for point in points if max(point[1]) <= room), default=1000)


@given(every_plan(), st.integers(0, 40), st.booleans())
def test_the_cheapest_plan_is_found_and_nothing_less_is_possible(
    points: list[Point], room: int, are_alike: bool
) -> None:
    found = search(points, room, frozenset(), are_alike=are_alike)
    assert found.least == cheapest(points, room)
    assert (found.best.objective if found.best else 1000) == found.least


@given(every_plan(), st.integers(0, 40), st.integers(1, 12), st.booleans())
def test_a_search_that_is_cut_off_still_bounds(points: list[Point], room: int, most: int, are_alike: bool) -> None:
    found = search(points, room, frozenset(), most, are_alike=are_alike)
    assert found.solved <= most
    assert found.least <= cheapest(points, room) <= (found.best.objective if found.best else 1000)


@given(every_plan(), st.integers(0, 40), st.data())
def test_what_is_refused_is_not_taken(points: list[Point], room: int, data: st.DataObject) -> None:
    refused = frozenset(data.draw(st.sets(st.sampled_from(points))))
    found = search(points, room, refused)
    wanted = cheapest([point for point in points if point not in refused], room)
    assert found.least <= wanted <= (found.best.objective if found.best else 1000)
    assert found.best is None or found.best.plan not in refused


def integer_programme(nearby: Nearby, tables: CostTables, priced: Sequence[CostTables], room: int) -> int | None:
    """The least cost of all plans whose residence is within the room at every moment; None if there are none."""
    problem = nearby.problem(tables)
    candidates = [problem.proposals(variable, Tiling((), ()), 2) for variable in problem.variables]
    first = np.cumsum([0, *map(len, candidates)])
    cost = [np.zeros(first[-1])]
    held = [[np.zeros(first[-1])] for _ in priced]
    start = int(first[-1])
    rows: list[tuple[dict[int, int], int]] = [(dict.fromkeys(range(low, high), 1), 1) for low, high in pairwise(first)]
    problems = [nearby.problem(one) for one in priced]
    for charge in problem.charges:
        own = candidates[charge.op]
        [table] = problem.made([(charge, own, own)])
        cost[0][first[charge.op] : first[charge.op + 1]] += table
    for number, link in enumerate(problem.links):
        tilings, strategies = candidates[link.tensor], candidates[link.op]
        [table] = problem.made([(link, tilings, strategies)])
        cost.append(table.ravel())
        for moment, other in enumerate(problems):
            [charged] = other.made([(other.links[number], tilings, strategies)])
            held[moment].append((charged - table).ravel())
        pairs = start + np.arange(table.size).reshape(table.shape)
        start += table.size
        for variable, axis in ((link.tensor, pairs), (link.op, pairs.T)):
            for value, row in enumerate(axis):
                rows.append(({**dict.fromkeys(row.tolist(), 1), int(first[variable]) + value: -1}, 0))
    matrix = lil_array((len(rows), start))
    for number, (entries, _) in enumerate(rows):
        for place, value in entries.items():
            matrix[number, place] = value
    right = [amount for _, amount in rows]
    result = milp(
        np.concatenate(cost),
        constraints=[
            LinearConstraint(csr_array(matrix), right, right),
            LinearConstraint(np.array([np.concatenate(parts) for parts in held]), -np.inf, room),
        ],
        integrality=np.arange(start) < first[-1],
        bounds=Bounds(0, 1),
    )
    return None if result.x is None else round(result.fun)


def planned(graph: Graph, ops: tuple[BoundOp, ...], workers: int, tables: CostTables) -> tuple[Nearby, Residence, int]:
    plan = decide(graph, ops, SearchRequest(workers, tables=tables))
    residence = Residence(graph, ops)
    return Nearby([plan], SearchRequest(workers, tables=tables)), residence, int(residence.of(plan).max())


def within(nearby: Nearby, residence: Residence, tables: CostTables, room: int) -> Branched[tuple[Tiling, ...]]:
    def column_of(composites: tuple[Tiling, ...]) -> Column[tuple[Tiling, ...]]:
        held = residence.of(nearby.plan(composites))
        return Column(composites, nearby.total(composites), held, nearby.taken(composites))

    def solve(prices: Prices, spans: Spans, charges: Charges) -> Answer[tuple[Tiling, ...]] | None:
        priced = PricedTables(tables, residence, prices, charges=nearby.charges(charges))
        found = nearby.solve(priced, spans)
        return None if found is None else Answer(column_of(found[0]), Fraction(found[1]))

    start = nearby.solve(tables, {})
    assert start is not None
    limits = np.full(residence.moments, room)
    return branched(
        [column_of(start[0])], solve, limits, nearby.variables(), 10**9, lambda one: True, HIGHEST, Budget(2000)
    )


@pytest.mark.parametrize(
    ("layers", "width", "batch"),
    chosen([(1, 12, 8), (1, 64, 16), (1, 12, 20), (2, 24, 36), (3, 16, 16)], fast=[(1, 12, 8), (1, 64, 16)]),
)
def test_on_two_workers_it_is_what_another_solver_finds(layers: int, width: int, batch: int) -> None:
    graph, tables = mlp(layers, width, batch), CostTables()
    ops = opdefs.standard().bind_all(graph)
    nearby, residence, most = planned(graph, ops, 2, tables)
    priced = [PricedTables(tables, residence, {moment: Fraction(1)}) for moment in range(residence.moments)]
    for share in (97, 85, 60):
        room = most * share // 100
        found = within(nearby, residence, tables, room)
        peer = integer_programme(nearby, tables, priced, room)
        if peer is None:
            assert found.best is None, share
            continue
        assert found.best is not None
        assert found.best.objective == found.least == peer, share
        assert found.best.residence.max() <= room
