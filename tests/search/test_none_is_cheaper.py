"""Where a plan is proven the best, nothing else costs less: no strategy of the literature, and no plan made by hand."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from fast_suite import chosen
from planner import opdefs
from planner.algebra.lane import has_owners
from planner.cost.tables import CostTables
from planner.errors import InfeasibleError, ModelError, UnsupportedError, UsageError
from planner.features.zoo import models as zoo
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.options import ReadOptions
from planner.options.planning import PlanOptions
from planner.partition.build import partition
from planner.planning.limit.trial import Trial
from planner.planning.machines import target_of
from planner.planning.objective import LITERATURE, of_the_literature
from planner.planning.request import ModelSource, PlanRequest
from planner.planning.session import Session
from planner.search.decide import STRATEGIES, decide
from planner.search.decision import Decision
from planner.search.literature.restrictions import fully_sharded
from planner.search.model.cuts import prime_factors
from planner.search.model.problem import Problem, Restriction
from planner.search.moves import restrictions
from planner.search.moves.megatron import tensor_parallel
from planner.search.moves.recursion import search_recursively
from planner.search.request import SearchRequest
from planner.tdl.bind import BoundOp
from random_graphs import graphs, images

STANDARD = opdefs.standard()
MODELS = {"mlp-3x64": 32, "lenet-5": 8, "gpt-1x64-2h": 2, "gpt-1x32-4h-lm": 2, "rnn-1-1k": 4, "cnn-3x64-12": 4}
"""Small ones, with their batches."""
SAMPLES = [(model, workers) for model, workers in product(MODELS, (2, 3, 4)) if (model, workers) != ("rnn-1-1k", 3)]
FAST = [("mlp-3x64", 4), ("lenet-5", 3), ("gpt-1x32-4h-lm", 2), ("cnn-3x64-12", 4)]
WAYS = (restrictions.data_parallel, restrictions.model_parallel, tensor_parallel, fully_sharded)
"""By data, by layers' outputs, by heads and wide layers (Megatron-LM), by data with state cut (ZeRO-3, FSDP)."""


@cache
def known(model: str, workers: int) -> tuple[Graph, tuple[BoundOp, ...], CostTables, Decision]:
    graph, tables = zoo.build(model, batch=MODELS[model]), CostTables()
    ops = opdefs.standard().bind_all(graph)
    return graph, ops, tables, decide(graph, ops, SearchRequest(workers, tables=tables))


@pytest.mark.parametrize(("model", "workers"), chosen(SAMPLES, FAST))
def test_no_strategy_costs_less(model: str, workers: int) -> None:
    graph, ops, tables, found = known(model, workers)
    assert found.certified_gap == 0.0
    assert found.with_costs(CostTables()).cost == found.cost
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


def planned(graph: Graph, workers: int, inputs: str, **wanted: Any) -> tuple[Session, Decision]:
    """A session, and its plan with shared deliveries."""
    source = ModelSource(Path("model.onnx"), ReadOptions(), STANDARD, None, make=lambda: graph)
    target = target_of(workers, None, None)
    session = Session(
        PlanRequest(PlanOptions(model=source.model, inputs=inputs, recompute="none", **wanted), source, target)
    )
    return session, session.planned().trial.decided


def below_the_bound(graph: Graph, workers: int, inputs: str, random: Random) -> list[tuple[str, Decision]]:
    """Plans by strategies, pins and efforts that cost less than the bound of the plan with usual effort.

    But for those that the gap says nothing of: with idle workers, or with shared deliveries that the plan has not.
    """
    session, found = planned(graph, workers, inputs)
    assert found.certified_gap is not None
    others = [
        (name, plan.decided)
        for name, plan in of_the_literature(LITERATURE, session.by_strategy)
        if isinstance(plan, Trial)
    ]
    others += [(effort, planned(graph, workers, inputs, effort=effort)[1]) for effort in ("quick", "thorough")]
    for name in random.sample(list(session.graph.tensors), min(4, len(session.graph.tensors))):
        dims = range(len(session.graph.tensors[name].shape))
        pin = random.choice(["R", *(f"S({dim})" for dim in dims)])
        with suppress(UsageError):  # a dim may be too small, and data that arrive in disjoint tiles are not replicated
            others.append((f"{name}={pin}", planned(graph, workers, inputs, pin={name: pin})[1]))
    assert len(others) > 8
    bound = round(found.cost / (1 + found.certified_gap))
    return [
        (name, plan)
        for name, plan in others
        if plan.cost < bound and not plan.deliveries and not any(map(has_owners, plan.tilings.values()))
    ]


@pytest.mark.parametrize(
    "count", [3, pytest.param(20, marks=pytest.mark.slow), pytest.param(300, marks=pytest.mark.nightly)]
)
def test_none_is_below_the_bound(count: int) -> None:
    @settings(max_examples=count, database=None, derandomize=True, suppress_health_check=[*HealthCheck])
    @given(
        st.one_of(graphs(), images()),
        st.sampled_from([2, 3, 4, 6, 8]),
        st.sampled_from(["free", "partitioned"]),
        st.randoms(use_true_random=False),
    )
    def drawn(graph: Graph, workers: int, inputs: str, random: Random) -> None:
        assume(max(tensor.elements for tensor in graph.tensors.values()) >= workers)
        assert not below_the_bound(graph, workers, inputs, random)

    drawn()


@pytest.mark.parametrize(
    ("rows", "columns", "wide", "workers", "strategy"),
    [(8, 3, 2, 6, "spartan"), (8, 3, 2, 6, "equalchop")],
)
def test_a_cut_at_once_is_tried(rows: int, columns: int, wide: int, workers: int, strategy: str) -> None:
    """Where sizes are uneven, or data too small to be divided along one dim by all."""
    shapes = {"x": (rows, columns), "v": (columns, wide), "w": (columns, 4), "y": (rows, wide), "z": (rows, 4)}
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name, shape in shapes.items()}
    products = (Op("first", "MatMul", ("x", "v"), ("y",)), Op("second", "MatMul", ("x", "w"), ("z",)))
    graph = Graph("products", tensors, products, ("x", "v", "w"), ("y", "z"), {})
    session, found = planned(graph, workers, "partitioned")
    other = session.by_strategy(strategy)
    assert found.cost <= other.cost
    assert len(found.cuts) == 1
    assert found.certified_gap == 0
