"""A plan of a graph that cannot be solved exactly: there always is one, and nothing is claimed of it that is not so."""

from io import StringIO
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fast_suite import chosen, examples
from planner import api, opdefs
from planner.algebra.tiling import UNCUT
from planner.errors import InfeasibleError
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import write_model
from planner.graph.reading.from_onnx import read_model
from planner.partition.build import partition
from planner.records import plain_record
from planner.search.bound.certify import every_tiling
from planner.search.decide import STRATEGIES, decide
from planner.search.effort import NORMAL_BOUND, EffortName
from planner.search.exact.choices import Choices
from planner.search.exact.eliminate import MAX_TABLE_ENTRIES
from planner.search.model.cuts import prime_factors
from planner.search.model.problem import Problem, no_restriction
from planner.search.moves import entangled as apart
from planner.search.moves import fusion
from planner.search.moves.entangled import solved
from planner.search.moves.recursion import search_recursively
from planner.search.repeats.shortened import in_order
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import Rules
from planner.training.build import build_training_graph
from planner.training.parameters.infer import infer_parameters
from random_graphs import entangled, graphs
from transformers_only import OF_TRANSFORMERS

T5 = Path(__file__).parent.parent / "models" / "t5.onnx"
OWN_METHODS = {"soybean-levels", "layer-wise", *OF_TRANSFORMERS}
"""Strategies for certain networks, or that are programmes of their own with limits of their own."""


def first_cut(problem: Problem, ways: int) -> Choices:
    return problem.choices((UNCUT,) * len(problem.variables), lambda one, now: problem.proposals(one, now, ways))


def example(strategy: st.SearchStrategy[Graph]) -> Graph:
    """The first graph drawn that cannot be solved exactly."""
    found: list[Graph] = []

    @settings(database=None, derandomize=True, max_examples=20, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def draw(graph: Graph) -> None:
        if not found and is_too_large(graph):
            found.append(graph)

    draw()
    return found[0]


def is_too_large(graph: Graph, workers: int = 2) -> bool:
    """Whether the first of these workers' cuts cannot be solved exactly, as ``decide`` asks for it."""
    problem = Problem(*in_order(graph, opdefs.standard().bind_all(graph)), workers, with_partial_sums=True)
    try:
        problem.solve(first_cut(problem, prime_factors(workers)[0]))
    except InfeasibleError:
        return True
    return False


@pytest.fixture(scope="module")
def tangle() -> Graph:
    return example(entangled())


@pytest.mark.slow
@examples(24)
@given(entangled(), st.sampled_from([2, 3, 4, 6]), st.sampled_from(["quick", "normal"]))
def test_there_is_always_a_plan_and_it_moves_what_it_says(graph: Graph, workers: int, effort: EffortName) -> None:
    check_plan(graph, workers, effort)


@pytest.mark.parametrize(
    ("workers", "effort"),
    chosen([(2, "quick"), (3, "quick"), (6, "quick"), (2, "normal")], fast=[(2, "quick")]),
)
def test_there_is_a_plan_of_one_such_graph(tangle: Graph, workers: int, effort: EffortName) -> None:
    assert is_too_large(tangle, workers)
    check_plan(tangle, workers, effort)


def check_plan(graph: Graph, workers: int, effort: EffortName) -> None:
    ops = opdefs.standard().bind_all(graph)
    plan = decide(graph, ops, SearchRequest(workers, effort=effort))
    assert plan.largest_table <= MAX_TABLE_ENTRIES
    assert partition(graph, ops, plan).program.predicted_bytes == plan.moved_bytes
    if is_too_large(graph, workers):
        assert plan.decided_apart or plan.certified_gap == 0
        assert effort == "normal" or plan.certified_gap is None
    else:
        assert not plan.decided_apart


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name not in OWN_METHODS])
def test_every_strategy_has_one(tangle: Graph, strategy: str) -> None:
    ops = opdefs.standard().bind_all(tangle)
    plan = decide(tangle, ops, SearchRequest(4, strategy=strategy, effort="quick"))
    assert partition(tangle, ops, plan).program.predicted_bytes == plan.moved_bytes


def test_rules_are_kept_to(tangle: Graph) -> None:
    ops = opdefs.standard().bind_all(tangle)
    names = tangle.inputs
    rules = Rules({names[0]: "S(1)", names[1]: "R"}, ((names[2], "R"), (names[2], "S(0)")))
    tilings = decide(tangle, ops, SearchRequest(2, rules=rules, effort="quick")).tilings
    assert [str(tilings[name]) for name in names[:3]] == ["S(1)/2", "R/2", "S(1)/2"]


@examples(30)
@given(graphs(), st.sampled_from([2, 3]), st.sampled_from([16, 40, 100]))
def test_it_costs_no_less_than_the_best_and_no_more_than_where_it_begins(
    graph: Graph, workers: int, entries: int
) -> None:
    """With limits that even a small graph exceeds."""
    problem = Problem(graph, opdefs.standard().bind_all(graph), workers)
    choices = first_cut(problem, workers)
    _, exact = problem.solve(choices)
    starts = [solution.total for _, solution in apart._starts(problem, choices)]
    composites, solution = solved(problem, choices, max_table_entries=entries)
    assert solution.largest_table <= entries
    assert exact.total <= solution.total <= min(starts)
    assert problem.cost(composites) == solution.total
    assert solution.total == exact.total or problem.decided_apart


@examples(12)
@given(graphs(), st.sampled_from([64, 256]))
def test_a_plan_improved_in_parts_costs_no_less_than_the_best(graph: Graph, entries: int) -> None:
    problem, cuts = Problem(graph, opdefs.standard().bind_all(graph), 4), (2, 2)
    start = search_recursively(problem, cuts, no_restriction)
    problem.decided_apart = 1
    with mock.patch.object(fusion, "MOVE_ENTRIES", entries):
        improved = fusion.improve(problem, cuts, no_restriction, start)
    everything = every_tiling(problem, cuts, no_restriction, start, NORMAL_BOUND)
    assert everything is not None
    assert problem.solve(everything)[1].total <= improved.cost <= start.cost
    assert problem.cost(improved.tilings) == improved.cost


@pytest.fixture
def t5_step() -> Graph:
    """A training step of an encoder and a decoder whose layers, as exported, have the weight of their norms in common.

    T5 of transformers with random weights, two layers each, exported and optimised by PyTorch.
    """
    forward = read_model(T5)
    everything = infer_parameters(forward, forward.outputs[0], train=("*",))
    return build_training_graph(
        forward, loss="softmax_cross_entropy", optimizer="sgd", learning_rate=0.1, parameters=everything
    )


@pytest.mark.slow
def test_layers_that_share_the_weight_of_their_norms_have_a_plan(t5_step: Graph, tmp_path: Path) -> None:
    write_model(t5_step, tmp_path / "t5.onnx")
    result = api.plan(tmp_path / "t5.onnx", gpus=2, effort="quick", out=tmp_path / "plan")
    assert result.plan.certified_gap is None
    assert plain_record(result)["decided_apart"] == result.plan.decided_apart > 0
    text = StringIO()
    api.show(result, text)
    apart = f"the graph is too entangled for one search: {result.plan.decided_apart} tensors and ops decided apart"
    assert apart in " ".join(text.getvalue().split())
    run = api.run(tmp_path / "plan", verify=True)
    assert run.verified
    assert run.predicted_bytes == run.moved_bytes == result.plan.moved_bytes


@pytest.mark.slow
def test_what_was_not_found_exactly_may_be_proven_best_nevertheless(t5_step: Graph) -> None:
    ops = opdefs.standard().bind_all(t5_step)
    quick, normal = (decide(t5_step, ops, SearchRequest(2, effort=effort)) for effort in ("quick", "normal"))
    assert normal.certified_gap is not None
    assert normal.cost <= quick.cost
    assert (normal.decided_apart > 0) == (normal.certified_gap > 0)
