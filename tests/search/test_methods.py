"""The strategies of the literature, in the same units as the found plan."""

from collections.abc import Collection
from itertools import pairwise

import pytest

import opdefs
from planner import zoo
from planner.algebra.tiling import UNCUT, Replicate, Tiling
from planner.cost.tables import Candidates, CostTables
from planner.errors import InfeasibleError, UnsupportedError
from planner.graph.model import DType, Graph, Op, Role, Tensor
from planner.partition.build import partition
from planner.search.decide import decide
from planner.search.literature import methods
from planner.search.literature.methods import METHODS
from planner.search.model.problem import Problem, Restriction, SearchVariable, no_restriction
from planner.search.moves.fusion import improve_once
from planner.search.moves.megatron import tensor_parallel
from planner.search.moves.recursion import Found
from planner.search.moves.restrictions import data_parallel
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import Rules
from planner.zoo import mlp


@pytest.mark.parametrize("workers", [2, 3, 4, 8])
@pytest.mark.parametrize("name", [name for name in METHODS if name != "megatron"])
def test_no_strategy_is_cheaper_than_the_found_plan(name: str, workers: int) -> None:
    graph = mlp(3, 24, 36)
    ops = opdefs.standard().bind_all(graph)
    decision = decide(graph, ops, SearchRequest(workers, strategy=name))
    assert partition(graph, ops, decision).program.predicted_bytes == decision.moved_bytes
    assert decision.cost >= decide(graph, ops, SearchRequest(workers)).cost


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 4, 8])
@pytest.mark.parametrize(
    "model", ["mlp-4x8192", "mlp-5x300", "cnn-5x2048-6", "cnn-5x512-24", "lenet-5", "alexnet", "gpt-2x1024", "rnn-1-1k"]
)
def test_on_models_of_the_zoo_too(model: str, workers: int) -> None:
    graph = zoo.build(model)
    ops = opdefs.standard().bind_all(graph)
    tables = CostTables()
    found = decide(graph, ops, SearchRequest(workers, tables=tables))
    compared = []
    for name in METHODS:
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


@pytest.mark.parametrize("workers", [8, 12, 16])
@pytest.mark.parametrize("model", ["mlp-4x8192", "mlp-5x300", "lenet-5"])
def test_starts_of_which_few_are_improved_lead_as_far(model: str, workers: int) -> None:
    """With little effort the others are crossed as they are."""
    graph = zoo.build(model)
    ops, lines = opdefs.standard().bind_all(graph), list[str]()
    quick = decide(graph, ops, SearchRequest(workers, effort="quick", progress=lines.append))
    assert quick.cost <= 1.001 * decide(graph, ops, SearchRequest(workers)).cost
    recursions = sum(line.startswith("cut 1 ") for line in lines)
    improved_at_once = sum(pair[0].startswith("cut") and pair[1].startswith("improving") for pair in pairwise(lines))
    assert improved_at_once <= 2 < recursions, "the first, and the one after the last"


def test_a_quick_plan_of_a_transformer_grows_out_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recursive one leads less far than Megatron-LM's."""
    graph, workers = zoo.build("gpt-6x1024-16h"), 8
    ops = opdefs.standard().bind_all(graph)
    assert len(ops) > methods.MANY_OPS
    megatron = decide(graph, ops, SearchRequest(workers, strategy="megatron"))
    found = decide(graph, ops, SearchRequest(workers, effort="quick"))
    assert found.cost <= 1.001 * megatron.cost
    monkeypatch.setattr(methods, "_transformer_start", lambda problem, cuts: None)
    assert found.cost < 0.97 * decide(graph, ops, SearchRequest(workers, effort="quick")).cost


def test_both_plans_of_a_transformer_are_crossed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each is better in places, and both are improved once in each way, the first but for its last cut."""
    graph, workers = zoo.build("gpt-4x512-8h", batch=3), 8
    ops = opdefs.standard().bind_all(graph)
    asked: list[Collection[int]] = []

    def improved(*args: object, left: Collection[int] = ()) -> Found:
        asked.append(left)
        return improve_once(*args, left=left)  # type: ignore[arg-type]

    monkeypatch.setattr(methods, "improve_once", improved)
    found = decide(graph, ops, SearchRequest(workers, effort="quick"))
    assert asked == [(3,), ()]
    monkeypatch.setattr(methods, "crossed", lambda problem, plans: min(plans, key=lambda plan: plan.cost))
    assert found.cost < decide(graph, ops, SearchRequest(workers, effort="quick")).cost


@pytest.mark.parametrize(("workers", "left"), [(4, (2,)), (8, (1, 3)), (16, (4,))])
def test_which_cuts_of_a_quick_plan_are_left(
    workers: int, left: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one always; of three the first as well, of a network without attention."""
    graph = zoo.build("resnet-50", batch=16)
    asked: list[Collection[int]] = []

    def improved(*args: object, left: Collection[int]) -> Found:
        asked.append(left)
        return improve_once(*args, left=left)  # type: ignore[arg-type]

    monkeypatch.setattr(methods, "improve_once", improved)
    decide(graph, opdefs.standard().bind_all(graph), SearchRequest(workers, effort="quick"))
    assert asked == [left]


def test_a_transformer_s_second_start_is_by_data_across_and_in_parts_of_layers_within() -> None:
    graph, cuts = zoo.build("gpt-2x64-2h"), (2, 2, 2)
    problem = Problem(graph, opdefs.standard().bind_all(graph), 8)
    start = methods._transformer_start(problem, len(cuts))
    assert start is not None
    own = [data_parallel(problem), tensor_parallel(problem), tensor_parallel(problem)]
    differ = 0
    for variable in problem.variables:
        prefix = UNCUT
        for restrict, ways in zip(own, cuts, strict=True):
            offered = problem.proposals(variable, prefix, ways)
            assert start(variable, offered) == restrict(variable, offered)
            differ += restrict(variable, offered) != data_parallel(problem)(variable, offered)
            prefix = start(variable, offered)[0]
    assert differ > 0


@pytest.mark.parametrize(("model", "workers"), [("gpt-6x64-2h", 4), ("gpt-6x1024-16h", 8)])
@pytest.mark.parametrize("has_best_start", [False, True])
def test_a_quick_plan_of_a_large_graph_keeps_to_rules(
    model: str, workers: int, has_best_start: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever start it grows out of, and though another plan would move less."""
    if has_best_start:
        monkeypatch.setattr(methods, "_transformer_start", lambda problem, cuts: no_restriction)
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


def test_no_second_start_where_there_is_no_attention_or_no_plan_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def searched(graph: Graph) -> tuple[int, int]:
        """How many recursions, and what the plan costs."""
        lines: list[str] = []
        ops = opdefs.standard().bind_all(graph)
        found = decide(graph, ops, SearchRequest(4, effort="quick", progress=lines.append))
        return sum(line.startswith("cut 1 ") for line in lines), found.cost

    def without_a_plan(problem: Problem) -> Restriction:
        def restrict(variable: SearchVariable, candidates: Candidates) -> Candidates:
            raise InfeasibleError("no plan keeps to this")

        return restrict

    assert searched(zoo.build("resnet-50", batch=16))[0] == 1
    graph = zoo.build("gpt-6x64-2h")
    assert searched(graph)[0] == 2
    monkeypatch.setattr(methods, "tensor_parallel", without_a_plan)
    recursions, cost = searched(graph)
    assert recursions == 2
    monkeypatch.setattr(methods, "_transformer_start", lambda problem, cuts: None)
    assert searched(graph) == (1, cost)
