"""Plans with tensors that stay partial, run: numbers are right, and what moves is what the plan says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fast_suite import chosen, spread
from partial_plans import all_kinds, partial_plan, partial_tensors, separate_gpt, two_products
from planner import api, opdefs
from planner.artifacts.plan import Plan, digest
from planner.features.zoo.models.recurrent import rnn
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import to_model, write_model
from planner.partition.build import complete_plan, partition, told_by_program
from planner.runtime.run_report import RunResult
from planner.search.decision import Decision
from planner.search.model.problem import Problem
from written_plans import write_plan


def check(result: RunResult, plan: Decision) -> None:
    assert result.verified, result.difference()
    assert all(tensor.has_reference for tensor in result.comparisons[0].tensors)
    assert result.moved_bytes == result.predicted_bytes == plan.moved_bytes
    assert all(fetch.predicted_bytes == fetch.moved_bytes for fetch in result.fetches)


@pytest.mark.parametrize(
    ("make", "workers", "seed"), spread([two_products, all_kinds], [2, 3, 4, 6], range(3), one_of=6)
)
def test_random_plans_run(make: Callable[[], Graph], workers: int, seed: int, tmp_path: Path) -> None:
    graph = make()
    ops = opdefs.standard().bind_all(graph)
    problem = Problem(graph, ops, workers, with_partial_sums=True)
    drawn = (partial_plan(problem, workers, number) for number in range(seed, 100, 3))
    plan = next(one for one in drawn if len(partial_tensors(one)) >= (2 if make is two_products else 9))
    partitioned = partition(graph, ops, plan)
    model = to_model(graph).SerializeToString(deterministic=True)
    complete = complete_plan(plan, graph.name, digest(model), **told_by_program(partitioned.program))
    write_plan(tmp_path / "plan", graph, model, complete, partitioned)
    check(api.run(tmp_path / "plan", steps=1, verify=True), plan)


@pytest.mark.parametrize(("workers", "sizes"), spread([2, 3, 4], [(8, 12, 10), (5, 13, 7)], one_of=2))
def test_products_that_must_stay_partial(
    plan_of: Callable[..., Any], sizes: tuple[int, int, int], workers: int
) -> None:
    planned = plan_of(two_products(*sizes), workers, pin={"p": "P", "q": "P"})
    plan = planned.result.plan
    assert [str(plan.strategies[name]) for name in ("first", "second")] == [
        " ".join(f"k/{ways}" for ways in plan.cuts)
    ] * 2
    rows, _, columns = sizes
    assert plan.moved_bytes == (workers - 1) * rows * columns * 4, "one reduce-scatter, of the sum"
    assert {"p", "q"} == set(partial_tensors(Plan.from_json((planned.directory / "plan.json").read_text())))
    check(api.run(planned.directory, steps=2, verify=True), plan)


@pytest.mark.parametrize("workers", chosen([2, 3, 4], fast=[3]))
def test_a_transformer_with_the_operator_of_megatron(plan_of: Callable[..., Any], workers: int) -> None:
    """Query, key and value have a product each; their gradients are added before they are joined, and joined once."""
    heads = 6 if workers == 3 else 4
    planned = plan_of(separate_gpt(1, 6 * heads, heads, 8, 2), workers, strategy="megatron")
    plan = planned.result.plan
    partial = {f"block1.{name}.backward.gemm" for name in ("query", "key", "value")}
    assert partial < set(partial_tensors(plan))
    check(api.run(planned.directory, steps=2, verify=True), plan)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_a_recurrent_network_joins_the_gradients_of_all_steps_once(plan_of: Callable[..., Any], workers: int) -> None:
    planned = plan_of(rnn(2, 12, batch=12), workers, strategy="data")
    plan = planned.result.plan
    steps = [name for name in partial_tensors(plan) if name.startswith("layer2.weight.grad.sum")]
    assert len(steps) == 18, "of twenty steps, the sums of two and more but not of all"
    check(api.run(planned.directory, steps=1, verify=True), plan)


@pytest.mark.slow
def test_less_memory_than_the_partial_sums_take(plan_of: Callable[..., Any], tmp_path: Path) -> None:
    """A limit that the plan does not keep to leads to a dearer one, in which some gradients stay partial."""
    graph, file = rnn(2, 24, batch=24, steps=5), tmp_path / "rnn.onnx"
    write_model(graph, file)
    free = api.plan(file, gpus=4, out=tmp_path / "free").plan
    limit = 80 * max(free.peak_bytes) // 100
    within = plan_of(file, 4, memory=f"{limit}B")
    plan = within.result.plan
    assert max(plan.peak_bytes) <= limit
    assert 0 < len(partial_tensors(plan)) <= len(partial_tensors(free))
    assert plan.cost > free.cost
    check(api.run(within.directory, steps=1, verify=True), plan)


def test_the_least_time(plan_of: Callable[..., Any]) -> None:
    planned = plan_of(rnn(1, 24, batch=24, steps=3), 8, topology="p2.8xlarge", objective="time", strategy="data")
    plan = planned.result.plan
    assert partial_tensors(plan)
    check(api.run(planned.directory, steps=1, verify=True), plan)
