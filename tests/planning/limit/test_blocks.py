"""Blocks of a plan, solved exactly over what variables are in other plans."""

from __future__ import annotations

from itertools import pairwise

import pytest

from planner import opdefs
from planner.cost.tables import CostTables
from planner.features.zoo.models import mlp
from planner.planning.limit.blocks import blocks, improve_blocks
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.model.problem import Problem
from planner.search.request import SearchRequest
from planner.stop import go_on

GRAPH = mlp(3, 64, 48)
OPS = opdefs.standard().bind_all(GRAPH)
PLANS = [decide(GRAPH, OPS, SearchRequest(4, strategy=name)) for name in ("data", "model")]


def test_blocks_are_the_nearest_half_of_what_is_free_and_cover_it() -> None:
    problem = Problem(GRAPH, OPS, 4)
    is_free = [number % 5 > 0 for number in range(len(problem.variables))]
    found = list(blocks(problem, is_free))
    assert len(set(found)) == len(found) > 1
    assert frozenset.union(*found) == {number for number, free in enumerate(is_free) if free}
    assert max(map(len, found)) == (sum(is_free) + 1) // 2


@pytest.mark.parametrize("most_split", [0, 12, 100])
def test_taken_plans_become_cheaper_and_are_of_what_is_offered_and_admitted(most_split: int) -> None:
    problem = Problem(GRAPH, OPS, 4)
    best = max(PLANS, key=lambda plan: plan.cost)
    taken = [best]

    def take(plan: Decision) -> bool:
        """As a limit does that admits so many other tilings and strategies."""
        changed = sum(tiling != best.tilings[name] for name, tiling in plan.tilings.items())
        changed += sum(one != best.strategies[name] for name, one in plan.strategies.items())
        if changed <= most_split:
            taken.append(plan)
        return changed <= most_split

    improve_blocks(best, PLANS, [problem], 100, take, go_on)
    costs = [plan.with_costs(CostTables()).cost for plan in taken]
    assert all(later < earlier for earlier, later in pairwise(costs))
    assert (len(taken) > 1) == (most_split > 0)
    for plan in taken:
        assert all(tiling in [other.tilings[name] for other in PLANS] for name, tiling in plan.tilings.items())
    assert most_split < 100 or costs[-1] <= min(plan.cost for plan in PLANS)
