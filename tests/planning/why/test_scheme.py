"""The closest known scheme: each scheme's own plan is named by it, and where a plan differs, the modules are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.algebra.tiling import Tiling
from planner.cost.tables import CostTables
from planner.descriptions import in_force
from planner.features.zoo.models import build
from planner.graph.rewriting.canonical import canonical
from planner.graph.step.purposes import Purpose, purposes
from planner.planning.bodies import decide_with_bodies
from planner.planning.why.scheme import closest_scheme
from planner.search.decision import Decision
from planner.search.literature.methods import METHODS
from planner.search.request import SearchRequest


def planned(strategy: str, workers: int = 4, model: str = "gpt-2x64-4h-lm") -> Decision:
    form = canonical(build(model, batch=8, optimizer="adam")).graph
    return decide_with_bodies(form, in_force(None, "refuse")[0], SearchRequest(workers, strategy=strategy))


def tiled(decided: Decision, purpose: Purpose, placement: str, but: str = "") -> Decision:
    """The plan with another tiling of all tensors of one purpose that are split evenly by it, but one."""
    purpose_of = purposes(decided.graph)
    pairs = {pair.current: pair.following for pair in decided.graph.state}
    names = [name for name, tensor in decided.graph.tensors.items() if purpose_of[name] is purpose and tensor.shape]
    tiling = Tiling.parse(placement, decided.cuts)
    chosen = {member: tiling for name in names if name != but for member in (name, pairs[name])}
    return replace(decided, tilings={**decided.tilings, **chosen})


@pytest.mark.parametrize("strategy", ["data", "fsdp", "megatron", "fsdp-megatron"])
def test_a_scheme_s_own_plan_has_its_name(strategy: str) -> None:
    assert closest_scheme(planned(strategy), CostTables()) == METHODS[strategy].summary


def test_sharded_optimizer_state_is_zero_1() -> None:
    by_data = planned("data")
    sharded = closest_scheme(tiled(by_data, Purpose.OPTIMIZER_STATE, "S(0)"), CostTables())
    assert sharded == "ZeRO-1 (data parallelism with sharded updates)"


def test_modules_that_differ_are_named() -> None:
    """One weight that is sharded where data parallelism replicates it."""
    by_data = planned("data", model="gpt-2x64")
    name = next(name for name, purpose in purposes(by_data.graph).items() if purpose is Purpose.PARAMETERS)
    following = next(pair.following for pair in by_data.graph.state if pair.current == name)
    sharded = dict.fromkeys((name, following), Tiling.parse("S(0)", by_data.cuts))
    text = closest_scheme(replace(by_data, tilings={**by_data.tilings, **sharded}), CostTables())
    head, _, modules = text.rpartition(": ")
    assert head.startswith("data parallelism; differs in ")
    assert head.endswith("% of tensors")
    assert name.startswith(modules)


def test_a_plan_unlike_all_is_none() -> None:
    plan = planned("data")
    strange = {name: Tiling.parse("R", plan.cuts) for name in plan.tilings}
    text = closest_scheme(replace(plan, tilings=strange), CostTables())
    assert text.startswith("no known scheme; ")
    assert closest_scheme(planned("tofu", 1), CostTables()) == ""
