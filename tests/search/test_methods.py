"""The strategies of the literature, in the same units as the found plan."""

import pytest

from fast_suite import by_night, chosen, spread
from planner import opdefs
from planner.algebra.tiling import Replicate, Tiling
from planner.cost.tables import CostTables
from planner.errors import InfeasibleError, UnsupportedError
from planner.features.zoo import models as zoo
from planner.features.zoo.models import mlp
from planner.graph.core.model import DType, Graph, Op, Role, Tensor
from planner.partition.build import partition
from planner.search.decide import STRATEGIES, decide
from planner.search.prepared import Prepared
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import Rules
from transformers_only import OF_TRANSFORMERS

ZOO = ["mlp-4x8192", "mlp-5x300", "cnn-5x2048-6", "cnn-5x512-24", "lenet-5", "alexnet", "gpt-2x1024", "rnn-1-1k"]


@pytest.mark.parametrize(
    ("name", "workers"), spread([name for name in STRATEGIES if name not in OF_TRANSFORMERS], [2, 3, 4, 8], one_of=4)
)
def test_no_strategy_is_cheaper_than_the_found_plan(name: str, workers: int) -> None:
    graph = mlp(3, 24, 36)
    ops = opdefs.standard().bind_all(graph)
    decision = decide(graph, ops, SearchRequest(workers, strategy=name))
    assert partition(graph, ops, decision).program.predicted_bytes == decision.moved_bytes
    assert decision.cost >= decide(graph, ops, SearchRequest(workers)).cost


@pytest.mark.parametrize(("model", "workers"), by_night(ZOO, [2, 4, 8], one_of=3))
def test_on_models_of_the_zoo_too(model: str, workers: int) -> None:
    graph = zoo.build(model)
    ops = opdefs.standard().bind_all(graph)
    tables = CostTables()
    found = decide(graph, ops, SearchRequest(workers, tables=tables))
    compared = []
    for name in STRATEGIES:
        try:
            plan = decide(graph, ops, SearchRequest(workers, strategy=name, tables=tables))
        except (InfeasibleError, UnsupportedError):
            continue
        assert found.cost <= plan.cost, name
        compared.append(name)
    assert {"tofu-recursion", "allrow-greedy", "spartan", "equalchop"} <= set(compared)


def weights(graph: Graph) -> list[str]:
    return [name for name, role in graph.roles.items() if role is Role.STATE]


def test_closed_forms() -> None:
    """Per weight of S bytes on k workers: data 2(k-1)S; FSDP gathers twice and scatters once."""
    layers, width, workers = 3, 24, 8
    graph = mlp(layers, width, 36)
    ops = opdefs.standard().bind_all(graph)
    size = width * width * 4
    assert decide(graph, ops, SearchRequest(workers, strategy="data")).moved_bytes == layers * 2 * (workers - 1) * size
    # The first layer's weight is not needed backward: nobody asks for the gradient of the data.
    wanted = (3 * layers - 1) * (workers - 1) * size
    assert decide(graph, ops, SearchRequest(workers, strategy="fsdp")).moved_bytes == wanted


def test_what_the_strategies_promise() -> None:
    graph = mlp(3, 24, 36)
    ops = opdefs.standard().bind_all(graph)
    data = decide(graph, ops, SearchRequest(4, strategy="data"))
    assert all(str(data.tilings[name]) == "R/2 R/2" for name in weights(graph))
    for strategy in ("model", "fsdp", "tofu-recursion", "icml18", "equalchop", "spartan"):
        plan = decide(graph, ops, SearchRequest(4, strategy=strategy))
        for name in weights(graph):
            assert not any(isinstance(placement, Replicate) for placement in plan.tilings[name].placements), strategy
    rows = decide(graph, ops, SearchRequest(4, strategy="allrow-greedy"))
    assert all(set(str(tiling).replace("/2", "").split()) <= {"S(0)", "R"} for tiling in rows.tilings.values())
    icml = decide(graph, ops, SearchRequest(4, strategy="icml18"))
    assert not any("k" in str(strategy) for strategy in icml.strategies.values())
    assert decide(graph, ops, SearchRequest(4, strategy="equalchop")).cuts == (4,)


def drawn(shapes: dict[str, tuple[int, ...]], ops: tuple[Op, ...]) -> Graph:
    """What no op makes is an input, what no op reads a result."""
    made = {name for op in ops for name in op.outputs}
    read = {name for op in ops for name in op.inputs}
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name, shape in shapes.items()}
    inputs, outputs = (tuple(name for name in shapes if name not in known) for known in (made, read))
    return Graph("drawn", tensors, ops, inputs, outputs, {})


@pytest.mark.parametrize("workers", [2, 3, 5, 7])
@pytest.mark.parametrize("size", [8, 4096])
def test_work_is_repeated_where_that_costs_less_than_to_move_what_it_makes(workers: int, size: int) -> None:
    """A Relu of n x n touches 8 n² bytes, worth n²; to gather what it makes brings 4 n² to every worker but one.

    The product that reads it costs 1.5 n² once more for every worker that repeats it, and less if it is divided.
    """
    shapes = {"x": (size, size), "r": (size, size), "y": (size, size)}
    graph = drawn(shapes, (Op("relu", "Relu", ("x",), ("r",)), Op("square", "MatMul", ("r", "r"), ("y",))))
    ops = opdefs.standard().bind_all(graph)
    for effort in ("quick", "normal"):
        plan = decide(graph, ops, SearchRequest(workers, effort=effort))
        assert plan.strategies["relu"].tiling == Tiling((Replicate(),), (workers,))
        assert plan.moved_bytes == 0
        assert plan.certified_gap == 0.0
        assert plan.excess_bytes >= plan.repeated_bytes >= (workers - 1) * size * size
        assert plan.strategies["square"].tiling != Tiling((Replicate(),), (workers,))


@pytest.mark.parametrize(
    ("model", "workers"), chosen([("gpt-6x64-2h", 4), ("gpt-6x1024-16h", 8)], fast=[("gpt-6x64-2h", 4)])
)
def test_a_quick_plan_of_a_large_graph_keeps_to_rules(model: str, workers: int) -> None:
    """Whatever start it grows out of, and though another plan would move less."""
    graph = zoo.build(model)
    ops = opdefs.standard().bind_all(graph)
    free = decide(graph, ops, SearchRequest(workers, effort="quick"))
    weights = [pair.current for pair in graph.state if len(graph.tensors[pair.current].shape) == 2]
    for placement in ("R", "S(0)"):
        plan = decide(
            graph, ops, SearchRequest(workers, effort="quick", rules=Rules(dict.fromkeys(weights, placement)))
        )
        assert {str(one) for name in weights for one in plan.tilings[name].placements} == {placement}
        assert plan.cost >= free.cost


def test_what_strategies_share_changes_no_plan() -> None:
    """One problem serves several of them, and forgets in between what it has found of each."""
    graph = mlp(3, 16, 12)
    ops = opdefs.standard().bind_all(graph)
    tables, prepared = CostTables(), Prepared()
    names = [name for name in STRATEGIES if name not in OF_TRANSFORMERS]
    alone, shared = (
        [decide(graph, ops, SearchRequest(4, strategy=name, **of_all)) for name in names]
        for of_all in ({}, {"tables": tables, "prepared": prepared})
    )
    assert [(plan.tilings, plan.cost) for plan in alone] == [(plan.tilings, plan.cost) for plan in shared]
