"""No plan moves less for a product or convolution than its bounds say."""

from __future__ import annotations

import pytest

from fast_suite import by_night, spread
from planner import opdefs
from planner.cost.distance import Distance, distances, times_the_least
from planner.cost.tables import CostTables
from planner.errors import InfeasibleError, UnsupportedError
from planner.features.zoo import models as zoo
from planner.features.zoo.models import mlp
from planner.graph.core.model import Graph
from planner.search.decide import STRATEGIES, decide
from planner.search.decision import Decision
from planner.search.effort import EffortName
from planner.search.request import SearchRequest
from planner.tdl.bind import BoundOp


def plan(
    graph: Graph,
    ops: tuple[BoundOp, ...],
    workers: int,
    strategy: str = "tofu",
    *,
    effort: EffortName = "quick",
    partitioned_inputs: bool = False,
) -> Decision:
    return decide(
        graph,
        ops,
        SearchRequest(workers, strategy=strategy, effort=effort, partitioned_inputs=partitioned_inputs),
    )


def rows(decided: Decision, *, with_grids: bool = False) -> list[Distance]:
    tables = CostTables()
    found = distances(decided.graph, decided.ops, decided.strategies, decided.tilings, tables, with_grids=with_grids)
    return list(found)


def below(found: list[Distance]) -> list[str]:
    """The ops that move less than a bound that holds of the plan."""
    return [
        f"{row.op}: {row.moved_bytes}, as it lies {row.as_it_lies_bytes}, least {row.any_bytes}"
        for row in found
        if (row.as_it_lies_bytes or 0) > row.moved_bytes or (row.lies_once and (row.any_bytes or 0) > row.moved_bytes)
    ]


def checked(name: str, workers: int, batch: int | None = None) -> None:
    graph = zoo.build(name, batch=batch)
    ops = opdefs.standard().bind_all(graph)
    compared = []
    for strategy in STRATEGIES:
        try:
            found = rows(plan(graph, ops, workers, strategy))
        except (InfeasibleError, UnsupportedError):
            continue
        assert found
        assert below(found) == []
        compared.append(strategy)
    assert "tofu" in compared
    assert len(compared) > 5


@pytest.mark.parametrize(("name", "workers"), spread(["lenet-5", "mlp-5x300"], [2, 3, 8, 12], one_of=4))
def test_no_strategy_moves_less_than_the_bounds(name: str, workers: int) -> None:
    checked(name, workers, batch=48)


ZOO = [
    *("mlp-5x300", "mlp-4x8192", "mlp-4x12288", "lenet-5", "alexnet", "vgg-16", "cnn-5x512-24", "cnn-5x2048-6"),
    *("gpt-2x1024", "rnn-1-1k"),
]
LARGE = ["alexnet", "vgg-16", "inception-v3", "resnet-50", "wresnet-50-4", "rnn-4-8k", "rnn-10-8k", "gpt2", "gpt2-xl"]


@pytest.mark.parametrize(("name", "workers"), by_night(ZOO, [2, 3, 8, 12], one_of=4, night=[("vgg-16", 12)]))
def test_no_strategy_moves_less_than_the_bounds_on_models_of_the_zoo(name: str, workers: int) -> None:
    checked(name, workers)


@pytest.mark.parametrize(("name", "workers"), by_night(LARGE, [2, 8, 64], one_of=3))
def test_no_quick_plan_moves_less_than_the_bounds(name: str, workers: int) -> None:
    graph = zoo.build(name)
    ops = opdefs.standard().bind_all(graph)
    found = rows(plan(graph, ops, workers))
    assert found
    assert below(found) == []


def test_where_the_tensors_lie_says_which_bound_holds() -> None:
    """Data parallelism: products move nothing, since weights lie on all; gradients are summed for all who hold them."""
    graph = mlp(2, 64, 1 << 18)
    ops = opdefs.standard().bind_all(graph)
    found = {row.op: row for row in rows(plan(graph, ops, 4, "data"))}
    forward = [row for row in found.values() if row.moved_bytes == 0]
    assert forward
    assert all(row.as_it_lies_bytes == 0 for row in forward)
    assert not any(row.lies_once for row in forward)
    summed = [row for row in found.values() if row.moved_bytes]
    assert summed
    assert {row.moved_bytes for row in summed} == {2 * 3 * 64 * 64 * 4}
    assert {row.excess for row in summed} == {1}
    assert times_the_least(found.values()) == 1
    assert times_the_least(forward) is None


def test_a_row_says_the_grid_that_moves_least() -> None:
    graph = mlp(1, 512, 512)
    ops = opdefs.standard().bind_all(graph)
    found = rows(plan(graph, ops, 8, partitioned_inputs=True), with_grids=True)
    assert {(row.regime, tuple(row.grid.items()), row.grid_bytes) for row in found} == {
        ("3D", (("m", 2), ("n", 2), ("k", 2)), 3 * 512 * 512 * 4)
    }
