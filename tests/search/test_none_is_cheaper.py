"""Where a plan is proven the best, nothing else costs less: no strategy of the literature, and no plan made by hand."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from itertools import product

import pytest

from fast_suite import chosen
from planner import opdefs, zoo
from planner.cost.by_op import costed
from planner.cost.tables import CostTables
from planner.errors import InfeasibleError, ModelError, UnsupportedError
from planner.graph.model import Graph
from planner.partition.build import partition
from planner.search.decide import STRATEGIES, decide
from planner.search.decided import Decided
from planner.search.literature.restrictions import fully_sharded
from planner.search.model.cuts import prime_factors
from planner.search.model.problem import Problem, Restriction
from planner.search.moves import restrictions
from planner.search.moves.megatron import tensor_parallel
from planner.search.moves.recursion import search_recursively
from planner.search.request import SearchRequest
from planner.tdl.bind import BoundOp

MODELS = {"mlp-3x64": 32, "lenet-5": 8, "gpt-1x64-2h": 2, "gpt-1x32-4h-lm": 2, "rnn-1-1k": 4, "cnn-3x64-12": 4}
"""Small ones, with their batches."""
SAMPLES = [(model, workers) for model, workers in product(MODELS, (2, 3, 4)) if (model, workers) != ("rnn-1-1k", 3)]
FAST = [("mlp-3x64", 4), ("lenet-5", 3), ("gpt-1x32-4h-lm", 2), ("cnn-3x64-12", 4)]
WAYS = (restrictions.data_parallel, restrictions.model_parallel, tensor_parallel, fully_sharded)
"""By data, by layers' outputs, by heads and wide layers (Megatron-LM), by data with state cut (ZeRO-3, FSDP)."""


@cache
def known(model: str, workers: int) -> tuple[Graph, tuple[BoundOp, ...], CostTables, Decided]:
    graph, tables = zoo.build(model, batch=MODELS[model]), CostTables()
    ops = opdefs.standard().bind_all(graph)
    return graph, ops, tables, decide(graph, ops, SearchRequest(workers, tables=tables))


@pytest.mark.parametrize(("model", "workers"), chosen(SAMPLES, FAST))
def test_no_strategy_costs_less(model: str, workers: int) -> None:
    graph, ops, tables, found = known(model, workers)
    assert found.certified_gap == 0.0
    assert costed(graph, ops, found, CostTables()).cost == found.cost
    assert partition(graph, ops, found).program.predicted_bytes == found.moved_bytes
    compared = []
    for name in STRATEGIES:
        with suppress(InfeasibleError, UnsupportedError, ModelError):
            plan = decide(graph, ops, SearchRequest(workers, strategy=name, tables=tables))
            assert found.cost <= plan.cost == plan.moved_bytes + plan.excess_bytes, name
            compared.append(name)
    assert {"soybean", "data", "fsdp", "hybrid", "allrow-greedy", "spartan", "equalchop", "icml18"} <= set(compared)
    assert ("megatron" in compared) == ("context" in compared) == model.startswith("gpt")


def by_hand(problem: Problem, cuts: tuple[int, ...]) -> Iterator[tuple[str, Restriction]]:
    """One way at each cut, in every order: data x tensor, tensor x data, data x FSDP, ..."""
    for some in product(WAYS, repeat=len(cuts)):
        with suppress(ModelError, UnsupportedError):  # no batch, or no attention
            makers: tuple[Callable[[Problem], Restriction], ...] = some
            yield " x ".join(one.__name__ for one in some), restrictions.by_cut(tuple(make(problem) for make in makers))


@pytest.mark.parametrize(("model", "workers"), chosen(SAMPLES, FAST))
def test_no_plan_by_hand_costs_less(model: str, workers: int) -> None:
    graph, ops, tables, found = known(model, workers)
    assert found.certified_gap == 0.0
    cuts = tuple(prime_factors(workers))
    problem = Problem(graph, ops, workers, with_partial_sums=True, tables=tables)
    names = []
    for name, restriction in by_hand(problem, cuts):
        with suppress(InfeasibleError):
            plan = search_recursively(problem, cuts, restriction)
            assert found.cost <= plan.cost == problem.cost(plan.tilings), name
            names.append(name)
    assert len(names) >= (4 if model.startswith("gpt") else 3) ** len(cuts) - len(cuts)
