"""Plans within a limit, against every plan of graphs that are small enough to try them all by their programs."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from planner import opdefs
from planner.algebra.tiling import UNCUT
from planner.cost.priced import PricedTables
from planner.cost.residence import Residence
from planner.cost.tables import CostTables
from planner.errors import InfeasibleError
from planner.features.zoo.models import mlp
from planner.graph.core.model import Graph
from planner.machine.rates import Rates
from planner.partition.build import unplaced
from planner.planning.goal import least_cost
from planner.planning.limit.fit import within
from planner.planning.limit.trial import Trial
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.effort import HIGHEST_PRICE
from planner.search.model.problem import Problem
from planner.search.request import SearchRequest
from planner.tdl.bind import BoundOp

WORKERS = 2


def problem_of(graph: Graph, ops: tuple[BoundOp, ...], tables: CostTables) -> Problem:
    return Problem(graph, ops, WORKERS, False, with_partial_sums=True, with_nests=True, tables=tables)


def summed(problem: Problem) -> NDArray[np.int64]:
    """The sum of all tables, by every choice of a candidate for every variable."""
    candidates = [problem.extensions(variable, UNCUT, WORKERS) for variable in problem.variables]
    sums = np.zeros([len(choices) for choices in candidates], dtype=np.int64)
    for link in problem.links:
        shape = [1] * sums.ndim
        shape[link.tensor], shape[link.op] = len(candidates[link.tensor]), len(candidates[link.op])
        [table] = problem.link_tables([(link, candidates[link.tensor], candidates[link.op])])
        sums += (table if link.tensor < link.op else table.T).reshape(shape)
    for link in problem.charges:
        shape = [1] * sums.ndim
        shape[link.op] = len(candidates[link.op])
        [charge] = problem.link_tables([(link, candidates[link.op], candidates[link.op])])
        sums += charge.reshape(shape)
    return sums


def frontier(graph: Graph, ops: tuple[BoundOp, ...], first: Decision) -> list[tuple[int, int]]:
    """Of all plans those that cost less than every plan of which a worker takes as little: the cost, and the peak."""
    tables, residence = CostTables(), Residence(graph, ops)
    problem = problem_of(graph, ops, tables)
    candidates = [problem.extensions(variable, UNCUT, WORKERS) for variable in problem.variables]
    costs = summed(problem)
    held = np.zeros_like(costs)
    for moment in range(residence.moments):
        priced = summed(problem_of(graph, ops, PricedTables(tables, residence, {moment: Fraction(1)})))
        np.maximum(held, priced - costs, out=held)
    points: list[tuple[int, int]] = []
    for place in np.argsort(costs, axis=None, kind="stable").tolist():
        # No program takes less than the residence (tests/partition/test_lean.py).
        if points and held.flat[place] >= WORKERS * points[-1][1]:
            continue
        values = np.unravel_index(place, costs.shape)
        composites = tuple(choices[value] for choices, value in zip(candidates, values, strict=True))
        plan = first.with_values(problem, composites)
        peak = max(unplaced(graph, ops, plan, lean=True).placed().program.peak_bytes)
        if not points or peak < points[-1][1]:
            points.append((int(costs[values]), peak))
    return points


@pytest.mark.parametrize(
    "sizes", [(1, 24, 40), (1, 64, 16), *(pytest.param(one, marks=pytest.mark.slow) for one in ((1, 32, 128),))]
)
def test_no_plan_within_a_limit_costs_less(sizes: tuple[int, int, int]) -> None:
    graph, tables = mlp(*sizes), CostTables()
    ops = opdefs.standard().bind_all(graph)
    ask = SearchRequest(WORKERS, tables=tables)
    decision = decide(graph, ops, ask)
    first = Trial(decision)
    every = frontier(graph, ops, decision)
    assert len(every) > 1, "limits make a difference"
    assert every[0][0] == decision.cost
    for cost, peak in every:
        plan = within(first, ask, [peak] * WORKERS, least_cost(tables))
        assert max(plan.partitioned.program.peak_bytes) <= peak
        assert plan.decided.cost == cost
    with pytest.raises(InfeasibleError, match="no plan was found that fits"):
        within(first, ask, [every[-1][1] - 1] * WORKERS, least_cost(tables))


@pytest.mark.parametrize("rates", [Rates(), Rates(1000.0, 0.001)], ids=["usual rates", "dear work"])
def test_the_highest_price_is_more_than_a_byte_of_memory_saves(rates: Rates) -> None:
    """Of all plans the one that is best at that price takes the least, whatever it costs otherwise."""
    graph, tables = mlp(1, 24, 40), CostTables(rates)
    ops = opdefs.standard().bind_all(graph)
    residence = Residence(graph, ops)
    costs = summed(problem_of(graph, ops, tables))
    dearest = Fraction(0)
    assert residence.moments > 1
    for moment in range(residence.moments):
        priced = PricedTables(tables, residence, {moment: Fraction(1)})
        held = summed(problem_of(graph, ops, priced)) - costs
        amounts = np.unique(held)
        cheapest = [int(costs[held == amount].min()) for amount in amounts]
        saved = zip(amounts[1:].tolist(), cheapest[1:], strict=True)
        dearest = max(dearest, *(Fraction(cheapest[0] - cost, amount - int(amounts[0])) for amount, cost in saved))
    assert 1 < dearest < HIGHEST_PRICE
