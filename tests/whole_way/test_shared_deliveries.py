"""Plans with shared deliveries run, are verified, and move what they say: found ones, and ones with random tilings."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deliveries import all_deliveries
from fast_suite import chosen, spread
from planner import api, opdefs
from planner.algebra.tiling import UNCUT, Tiling
from planner.artifacts.plan import Plan, digest
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import to_model
from planner.graph.step.deliveries import with_deliveries
from planner.partition.build import complete_plan, partition, told_by_program
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.model.cuts import prime_factors
from planner.search.model.problem import Problem
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import Rules
from written_plans import write_plan


def check(directory: Path, moved_bytes: int) -> None:
    run = api.run(directory, steps=2, verify=True)
    assert run.verified, run.difference()
    assert run.moved_bytes == run.predicted_bytes == moved_bytes
    assert all(fetch.predicted_bytes == fetch.moved_bytes for fetch in run.fetches)


@pytest.mark.parametrize("workers", chosen([2, 3, 4], fast=[3]))
def test_mlp_in_which_nothing_is_replicated(plan_of: Callable[..., Any], mlp_step: Graph, workers: int) -> None:
    planned = plan_of(mlp_step, workers, replicate="none")
    assert planned.result.plan.deliveries
    check(planned.directory, planned.result.plan.moved_bytes)


@pytest.mark.parametrize("workers", chosen([2, 3, 4], fast=[2]))
def test_cnn_cut_spatially(
    plan_of: Callable[..., Any],
    cnn_step: Graph,
    spatial_pins: Callable[[Graph, str], Mapping[str, str]],
    workers: int,
) -> None:
    """Rows of the images are cut, 17 of them, weights too, and delivered to both passes."""
    pins = {**spatial_pins(cnn_step, "S(2)"), "two.w": "S(0)", "three.w": "S(0)", "fc.w": "S(1)"}
    planned = plan_of(cnn_step, workers, pin=pins, effort="quick")
    assert planned.result.plan.deliveries
    check(planned.directory, planned.result.plan.moved_bytes)


@pytest.mark.parametrize(("workers", "seed"), spread([2, 3, 4], range(2), one_of=6))
def test_deliveries_in_random_tilings(cnn_step: Graph, tmp_path: Path, workers: int, seed: int) -> None:
    """Every tensor of several readers is delivered to all of them, and again to the last two, as chance has it.

    So readers find what they need, a part of it, or a border of it missing; a delivery is a tile, a slice or a fetch.
    """
    deliveries = all_deliveries(cnn_step)
    graph = with_deliveries(cnn_step, deliveries)
    ops = opdefs.standard().bind_all(graph)
    delivered = {delivery.name for delivery in deliveries}
    rng = np.random.default_rng(seed)
    problem, cuts = Problem(graph, ops, workers), prime_factors(workers)
    chosen: dict[str, Tiling] = {}
    for name in sorted(delivered):
        tiling = UNCUT
        for ways in cuts:
            options = problem.extensions(problem.variables[problem.variable_of_tensor[name]], tiling, ways)
            tiling = options[rng.integers(len(options))]
        chosen[name] = tiling
    pins = {name: str(tiling) for name, tiling in chosen.items()}
    content = to_model(cnn_step).SerializeToString(deterministic=True)
    plan = _decided(graph, pins, chosen, workers)
    partitioned = partition(graph, ops, plan)
    plan = complete_plan(
        plan, graph.name, digest(content), deliveries=tuple(deliveries), **told_by_program(partitioned.program)
    )
    assert Plan.from_json(plan.to_json()) == plan
    folder = tmp_path / "plan"
    write_plan(folder, cnn_step, content, plan, partitioned)
    check(folder, plan.moved_bytes)
    assert {row.name for row in api.explain(folder).tensors if row.delivers} == delivered


def _decided(graph: Graph, pins: Mapping[str, str], chosen: Mapping[str, Tiling], workers: int) -> Decision:
    """The best plan with these deliveries, each held as it is delivered."""
    ops = opdefs.standard().bind_all(graph)
    return decide(graph, ops, SearchRequest(workers, rules=Rules(pins), held=chosen, effort="quick"))


@pytest.mark.parametrize("share", ["none", "auto"])
def test_sharing_is_a_choice(plan_of: Callable[..., Any], mlp_step: Graph, share: str) -> None:
    plan = plan_of(mlp_step, 2, replicate="none", share=share).result.plan
    assert bool(plan.deliveries) is (share == "auto")


def test_strategies_of_the_literature_share_nothing(plan_of: Callable[..., Any], mlp_step: Graph) -> None:
    """FSDP gathers a weight in both passes, so as not to hold it in between."""
    assert not plan_of(mlp_step, 2, strategy="fsdp").result.plan.deliveries
