"""Equal ops beside each other have owners where that costs less, and run as their model does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from mixtures import LARGE, SMALL, SPELLINGS, mixture
from momenta import momentum
from planner import api, opdefs
from planner.algebra.lane import has_owners
from planner.algebra.tiling import Only, Replicate, Tiling
from planner.commands import main as cli
from planner.cost.tables import CostTables
from planner.graph.core.model import DType, Graph, lanes_of_tensors
from planner.graph.files.to_onnx import write_model
from planner.graph.rewriting import lanes as lanes_of_a_graph
from planner.graph.rewriting.canonical import canonical
from planner.graph.rewriting.lanes import lanes_of, marked
from planner.planning.bodies import decide_with_bodies
from planner.planning.owners import decide_with_owners, even, is_even, owned_in
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import NO_RULES, Rules

STANDARD = opdefs.standard()


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16])
def test_each_of_equal_matrices_has_one_owner(dtype: DType) -> None:
    """Every matrix comes to its owner, or goes back: 7/8 of it, of eight of 2,048 x 2,048 on eight workers."""
    graph = canonical(momentum(8, 2048, is_loop=True, dtype=dtype)).graph
    found = decide_with_owners(graph, STANDARD, SearchRequest(8, effort="quick"))
    assert found.moved_bytes == 7 * 2048 * 2048 * dtype.item_bytes
    assert owned_in(found) == {"op.lane0.0.square": 8}


def test_owners_that_save_nothing_are_not_taken() -> None:
    graph = canonical(momentum(3, 8, is_loop=True)).graph
    ask = SearchRequest(2)
    plain = decide_with_bodies(graph, STANDARD, ask)
    found = decide_with_owners(graph, STANDARD, ask)
    assert found.cost <= plain.cost
    assert found.graph is plain.graph or found.cost < plain.cost


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "count"), [(2, 2), (3, 4), (4, 4)])
def test_owners_run_as_the_model_does(tmp_path: Path, workers: int, count: int) -> None:
    write_model(momentum(count, 48, is_loop=True), tmp_path / "step.onnx")
    _run_as_planned(tmp_path, workers, {count})


def _run_as_planned(folder: Path, workers: int, counts: set[int]) -> None:
    planned = api.plan(folder / "step.onnx", gpus=workers, out=folder / "plan")
    assert set(planned.plan.owned.values()) == counts
    assert json.loads((folder / "plan" / "plan.json").read_text()).get("owned", {}) == planned.plan.owned
    result = api.run(folder / "plan", steps=2, verify=True)
    assert result.verified, result.difference()
    assert result.moved_bytes == result.predicted_bytes == planned.plan.moved_bytes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spelling", "workers"), [("loop", 4), ("loop with capacities", 2), ("loop with capacities", 3)]
)
def test_experts_run_as_the_model_does(tmp_path: Path, spelling: str, workers: int) -> None:
    write_model(mixture(spelling, SMALL), tmp_path / "step.onnx")
    _run_as_planned(tmp_path, workers, {4})


@pytest.mark.parametrize("rules", [Rules(pins={"lane1.0.square": "S(0)"}), Rules(forbidden=(("lane*", "S(1)"),))])
def test_what_a_rule_names_has_no_owner(rules: Rules) -> None:
    graph = canonical(momentum(4, 48, is_loop=True), ["lane1.0.square"]).graph
    ask = SearchRequest(4, rules=rules, effort="quick")
    assert owned_in(decide_with_owners(graph, STANDARD, ask)) == {}
    without = decide_with_owners(graph, STANDARD, replace(ask, rules=NO_RULES))
    assert set(owned_in(without).values()) == {4}


@pytest.mark.slow
def test_experts_of_a_loop_cost_what_stacked_ones_do() -> None:
    """4,096 tokens of 1,024 numbers, eight experts of which each token goes to two, eight workers.

    All tokens come to all workers that have an expert, and sums of what these make of them go back; where experts have
    places, those tokens alone come that have one.
    """
    tokens, width, moves, router = 4096, 1024, 7 / 8, 2 * 7 * 1024 * 8 * 4
    everything = 2 * 8 * moves * tokens * width * 4
    chosen = 2 * 2 * moves * tokens * width * 4
    seats = moves * tokens * 8 * 128 * 4
    aims = (everything, everything, chosen + seats, chosen + seats)
    assert len(aims) == len(SPELLINGS)
    for spelling, least in zip(SPELLINGS, aims, strict=True):
        graph = canonical(mixture(spelling, LARGE)).graph
        found = decide_with_owners(graph, STANDARD, SearchRequest(8, effort="quick"))
        assert found.moved_bytes == pytest.approx(least + router, abs=1000), spelling
        assert found.excess_bytes < 100_000


@pytest.mark.slow
@pytest.mark.parametrize("spelling", ["loop", "loop with capacities"])
def test_no_hand_plan_with_owners_costs_less(spelling: str) -> None:
    """Every op of an expert, its weights and what is made of them wholly on the worker that has the expert."""
    graph = canonical(mixture(spelling, SMALL)).graph
    found = decide_with_owners(graph, STANDARD, SearchRequest(4, effort="quick"))
    tables = CostTables()
    told = marked(graph, lanes_of(graph))
    plain = decide_with_bodies(told, STANDARD, SearchRequest(4, strategy="data"))
    tilings, strategies = dict(plain.tilings), dict(plain.strategies)
    owner = Tiling((Only(0),) * len(plain.cuts), plain.cuts)
    for bound in plain.ops:
        if bound.lane is not None:
            own = bound.lane.owned(owner)
            assert own is not None
            strategies[bound.op.name] = replace(strategies[bound.op.name], tiling=own)
    for name, lane in lanes_of_tensors(told).items():
        tilings[name] = lane.owned(owner) or owner
    by_hand = plain.with_tilings(tilings, strategies, tables)
    assert is_even(by_hand)
    assert found.cost <= by_hand.cost < plain.cost


def test_lanes_in_unequal_plans_are_made_alike() -> None:
    """One lane of four is divided among all: the charges of the others take for granted that it is not."""
    graph = canonical(momentum(4, 48, is_loop=True)).graph
    told = marked(graph, lanes_of(graph))
    found = decide_with_bodies(told, STANDARD, SearchRequest(4, effort="quick"))
    assert is_even(found)
    name = next(name for name, lane in told.lanes.items() if lane.number == 3)
    assert has_owners(found.strategies[name].tiling)
    all_do_it = Tiling((Replicate(), Replicate()), (2, 2))
    changed = {**found.strategies, name: replace(found.strategies[name], tiling=all_do_it)}
    tables = CostTables()
    uneven = found.with_tilings(found.tilings, changed, tables)
    assert not is_even(uneven)
    again = even(uneven, tables)
    assert again is not None
    assert (again.cost, again.strategies) == (found.cost, found.strategies)


@pytest.mark.parametrize(
    ("workers", "count", "size"),
    [(2, 2, 48), *(pytest.param(*case, marks=pytest.mark.slow) for case in [(3, 4, 48), (4, 4, 48), (8, 8, 2048)])],
)
def test_no_plan_by_hand_costs_less(workers: int, count: int, size: int) -> None:
    """An owner of each matrix (a stack can say it), its rows or columns everywhere, and each multiplied everywhere."""
    loop, stack = (canonical(momentum(count, size, is_loop=is_loop)).graph for is_loop in (True, False))
    ask = SearchRequest(workers, effort="quick")
    found = decide_with_owners(loop, STANDARD, ask).cost
    tilings = [(loop, "lane*", "S(0)"), (loop, "lane*", "S(1)"), (loop, "lane*", "R"), (stack, "all.*", "S(0)")]
    for graph, pattern, tiling in tilings:
        by_hand = decide_with_owners(graph, STANDARD, replace(ask, rules=Rules({pattern: tiling})))
        assert found <= by_hand.cost, (pattern, tiling)


def beside(rows: int, rank: int, other: int = 0) -> onnx.ModelProto:
    """Three times the same two products, of weights of their own; and a larger product that is none of them."""
    reads = [f"float[{rows},8] x{i}, float[8,{rank}] u{i}, float[{rank},8] v{i}" for i in range(3)]
    lines = [f"a{i} = MatMul(x{i}, u{i}) b{i} = Relu(a{i}) y{i} = MatMul(b{i}, v{i})" for i in range(3)]
    makes = [f"float[{rows},8] y{i}" for i in range(3)]
    if other:
        reads.append(f"float[{other},{other}] p, float[{other},{other}] q")
        lines.append("r = MatMul(p, q) z = MatMul(r, q)")
        makes.append(f"float[{other},{other}] z")
    text = f"m ({', '.join(reads)}) => ({', '.join(makes)}) {{ {' '.join(lines)} }}"
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')


def test_explaining_a_plan_with_owners_looks_for_equal_ops_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(momentum(4, 48, is_loop=True), tmp_path / "step.onnx")
    made = api.plan(tmp_path / "step.onnx", gpus=4, out=tmp_path / "plan", effort="quick", models=False)
    assert made.plan.owned
    looked = []

    class Counted(lanes_of_a_graph._Finder):
        def __init__(self, graph: Graph) -> None:
            looked.append(graph.name)
            super().__init__(graph)

    monkeypatch.setattr(lanes_of_a_graph, "_Finder", Counted)
    api.explain(tmp_path / "plan")
    assert len(looked) == 1


@pytest.mark.parametrize(
    ("model", "asked", "reason"),
    [
        (beside(12, 12), {}, "a plan with owners of them was looked for, and costs no less"),
        (beside(5, 7, 1001), {}, "what would come to owners of them, and go from them, is about as much or more"),
        (
            beside(5, 7),
            {"pin": {"b1": "S(0)"}},
            "a rule is for a tensor of theirs, and with owners all would be divided alike",
        ),
        (
            beside(12, 12),
            {"memory": "1MiB"},
            "a plan with owners of them was looked for, and is no better where memory or time counts",
        ),
        (beside(12, 12), {"strategy": "allrow-greedy"}, "the strategy allrow-greedy gives none an owner"),
    ],
    ids=["dearer", "cheap", "ruled", "limit", "strategy"],
)
def test_why_equal_ops_have_no_owners_is_told(
    model: onnx.ModelProto, asked: dict[str, Any], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(model, tmp_path / "m.onnx")
    plan = api.plan(tmp_path / "m.onnx", gpus=2, out=tmp_path / "plan", effort="quick", **asked).plan
    (apart,) = api.explain(tmp_path / "plan").apart
    assert (apart.names, apart.reason) == (("MatMul.a0", "MatMul.a1", "MatMul.a2"), reason)
    assert 0 < apart.cost_bytes <= plan.cost
    assert (apart.cost_bytes == plan.cost) is (len(plan.strategies) == 9), "all of it where there is nothing else"
    assert cli.main(["explain", str(tmp_path / "plan")]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "MatMul.a0 and 2 more" in told
    assert reason in told
