"""Runners-up: what is stated is what the plan that it is stated of costs, by its program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from fast_suite import chosen
from planner.algebra.tiling import Tiling
from planner.artifacts.asked import Asked
from planner.artifacts.program import Fetch
from planner.cost.tables import CostTables
from planner.descriptions import in_force
from planner.features.zoo.models import build
from planner.graph.core.model import Graph
from planner.graph.rewriting.canonical import canonical
from planner.partition.build import partition
from planner.planning.bodies import decide_with_bodies
from planner.planning.limit.trial import Trial
from planner.planning.why.near import NearPlan
from planner.reasons import RunnerUp
from planner.search.decision import Decision
from planner.search.request import SearchRequest

MODELS = [
    "mlp-2x24",
    "mlp-5x300",
    "mlp-3x64",
    "lenet-5",
    "cnn-2x16-6",
    "gpt-1x64",
    "gpt-2x64",
    "mlp-4x96",
    "mlp-8x128",
    "cnn-3x32-6",
]
PAIRS = 10
"""Of each model."""


def planned(graph: Graph, workers: int) -> Decision:
    form = canonical(graph).graph
    descriptions = in_force(None, "refuse")[0]
    return decide_with_bodies(form, descriptions, SearchRequest(workers, effort="quick"))


def pairs(near: NearPlan, tensors: Sequence[str], most: int) -> Iterator[tuple[str, RunnerUp]]:
    """Tensors and their runners-up, of which there is a plan."""
    found = 0
    for name in tensors:
        for other in near.runners_up("tensor", name, 2):
            if other.cost_bytes is not None and found < most:
                found += 1
                yield name, other


def assert_stated_is_true(decided: Decision, near: NearPlan, name: str, stated: RunnerUp) -> None:
    """The plan made by the same call has the choice, and its program moves what is stated."""
    tiling = Tiling.parse(stated.choice, decided.cuts)
    plan = near.with_choice("tensor", name, tiling)
    assert plan.tilings[name] == tiling
    program = partition(plan.graph, plan.ops, plan).program
    moved = sum(step.predicted_bytes for one in program.workers for step in one.steps if isinstance(step, Fetch))
    again = plan.with_costs(CostTables(plan.rates))
    assert (moved, moved + again.excess_bytes) == (stated.moved_bytes, stated.cost_bytes)
    assert stated.more_bytes == plan.cost - decided.cost
    assert stated.lacking_bytes is not None
    assert (stated.lacking_bytes == 0) == (max(program.peak_bytes) <= LIMIT or _lean_fits(plan))


LIMIT = 1 << 20


def _lean_fits(plan: Decision) -> bool:
    return max(Trial(plan, is_lean=True).partitioned.program.peak_bytes) <= LIMIT


def _checked(model: str, most: int) -> int:
    decided = planned(build(model), 4)
    # Those that move most, and each dim of whatever has several.
    tensors = sorted(decided.tilings, key=lambda name: -decided.tensor_bytes[name])
    near = NearPlan(decided, Asked(limit_bytes=(LIMIT,) * 4), decided.graph.tensors, CostTables(decided.rates))
    count = 0
    for name, stated in pairs(near, tensors, most):
        assert_stated_is_true(decided, near, name, stated)
        count += 1
    return count


def test_what_is_stated_of_a_small_model_is_what_its_plans_cost() -> None:
    assert _checked("mlp-2x24", 6) == 6


@pytest.mark.parametrize("model", chosen(MODELS, [], night=["gpt-2x64", "lenet-5"]))
def test_what_is_stated_is_what_the_plan_costs(model: str) -> None:
    assert _checked(model, PAIRS) == PAIRS


def test_a_choice_that_the_rules_forbid_is_no_runner_up() -> None:
    decided = planned(build("mlp-2x24"), 4)
    tables = CostTables(decided.rates)
    free = NearPlan(decided, Asked(), decided.graph.tensors, tables)
    ruled = NearPlan(decided, Asked(forbidden=(("w1", "R"),)), decided.graph.tensors, tables)
    assert any("R" in one.choice for one in free.runners_up("tensor", "w1", 9))
    assert not any("R" in one.choice for one in ruled.runners_up("tensor", "w1", 9))


def test_another_strategy_of_an_op_keeps_its_own() -> None:
    decided = planned(build("mlp-2x24"), 2)
    near = NearPlan(decided, Asked(), decided.graph.tensors, CostTables(decided.rates))
    found = list(near.runners_up("op", "x1_op", 3))
    assert len(found) == 3
    assert [one.cost_bytes for one in found] == sorted(one.cost_bytes or 0 for one in found)
    assert {str(decided.strategies["x1_op"]), *(one.choice for one in found)} == {"m/2", "n/2", "k/2", "R/2"}
    # One cut is solved exactly: nothing can cost less than the plan that is the best of all.
    assert decided.certified_gap == 0
    assert all(one.more_bytes is not None and one.more_bytes >= 0 for one in found)
