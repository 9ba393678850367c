"""Equal ops beside each other are planned as ops of a stack where that costs less, and run as such."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from momenta import momentum
from planner import api, opdefs
from planner.commands import main as cli
from planner.graph.model import DType
from planner.graph.rewriting.canonical import canonical
from planner.graph.to_onnx import write_model
from planner.planning.bodies import decide_with_bodies
from planner.planning.stacks import decide_with_stacks, stacks_in
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import NO_RULES, Rules


@pytest.mark.parametrize(("is_loop", "dtype"), [(True, DType.FLOAT32), (False, DType.FLOAT32), (True, DType.BFLOAT16)])
def test_each_of_equal_matrices_has_one_owner(is_loop: bool, dtype: DType) -> None:
    """Every matrix comes to its owner and goes back: 7/8 of it twice, of eight of 2,048 x 2,048 on eight workers."""
    graph = canonical(momentum(8, 2048, is_loop=is_loop, dtype=dtype)).graph
    found = decide_with_stacks(graph, opdefs.standard(), SearchRequest(8, effort="quick"))
    assert found.moved_bytes == 2 * 7 * 2048 * 2048 * dtype.item_bytes


@pytest.mark.parametrize(
    ("workers", "count", "size"),
    [(2, 2, 48), *(pytest.param(*case, marks=pytest.mark.slow) for case in [(3, 4, 48), (4, 4, 48), (8, 8, 2048)])],
)
def test_no_plan_by_hand_costs_less(workers: int, count: int, size: int) -> None:
    """An owner of each matrix (a stack can say it), its rows or columns everywhere, and each multiplied everywhere."""
    loop, stack = (canonical(momentum(count, size, is_loop=is_loop)).graph for is_loop in (True, False))
    ask = SearchRequest(workers, effort="quick")
    found = [decide_with_stacks(graph, opdefs.standard(), ask).cost for graph in (loop, stack)]
    tilings = [(loop, "lane*", "S(0)"), (loop, "lane*", "S(1)"), (loop, "lane*", "R"), (stack, "all.*", "S(0)")]
    for graph, pattern, tiling in tilings:
        by_hand = decide_with_stacks(graph, opdefs.standard(), replace(ask, rules=Rules({pattern: tiling})))
        assert max(found) <= by_hand.cost, (pattern, tiling)


def test_a_stack_that_saves_nothing_is_not_taken() -> None:
    graph = canonical(momentum(3, 8, is_loop=True)).graph
    ask = SearchRequest(2)
    plain = decide_with_bodies(graph, opdefs.standard(), ask)
    found = decide_with_stacks(graph, opdefs.standard(), ask)
    assert found.cost <= plain.cost
    assert found.graph is plain.graph or found.cost < plain.cost


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "count", "dtype"),
    [(2, 2, DType.FLOAT32), (3, 4, DType.FLOAT32), (4, 4, DType.FLOAT32), (2, 4, DType.BFLOAT16)],
)
def test_a_stack_runs_as_its_model_does(tmp_path: Path, workers: int, count: int, dtype: DType) -> None:
    write_model(momentum(count, 48, is_loop=True, dtype=dtype), tmp_path / "step.onnx")
    planned = api.plan(tmp_path / "step.onnx", gpus=workers, out=tmp_path / "plan")
    assert set(planned.plan.stacked.values()) == {count}
    assert json.loads((tmp_path / "plan" / "plan.json").read_text())["stacked"] == planned.plan.stacked
    result = api.run(tmp_path / "plan", steps=2, verify=True)
    assert result.verified, result.difference()
    assert result.moved_bytes == result.predicted_bytes == planned.plan.moved_bytes
    assert api.explain(tmp_path / "plan").apart == ()
    rows = api.explain(tmp_path / "plan", subject="lane1.0.square").in_place
    assert [row.held_by for row in rows] == [planned.plan.in_place["lane0.0.square"]]  # type: ignore[index]


@pytest.mark.parametrize("rules", [Rules(pins={"lane1.0.square": "S(0)"}), Rules(forbidden=(("lane*", "S(1)"),))])
def test_what_a_rule_names_is_in_no_stack(rules: Rules) -> None:
    graph = canonical(momentum(4, 48, is_loop=True), ["lane1.0.square"]).graph
    ask = SearchRequest(4, rules=rules, effort="quick")
    found = decide_with_stacks(graph, opdefs.standard(), ask)
    assert "lane1.0.square" in found.tilings
    assert stacks_in(found.graph, graph) == {}
    assert set(
        stacks_in(decide_with_stacks(graph, opdefs.standard(), replace(ask, rules=NO_RULES)).graph, graph).values()
    ) == {4}


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


@pytest.mark.parametrize(
    ("model", "asked", "reason"),
    [
        (beside(12, 12), {}, "a plan with a stack of them was looked for, and costs no less"),
        (beside(5, 7, 1001), {}, "a plan with stacks is looked for where they cost more than 1% of the plan"),
        (beside(5, 7), {"pin": {"b1": "S(0)"}}, "a rule is for a tensor of theirs, of which a stack would have none"),
        (
            beside(12, 12),
            {"memory": "1MiB"},
            "a plan with a stack of them was looked for, and is no better where memory or time counts",
        ),
        (beside(12, 12), {"strategy": "allrow-greedy"}, "the strategy allrow-greedy makes no stacks"),
    ],
    ids=["dearer", "cheap", "ruled", "limit", "strategy"],
)
def test_why_equal_ops_are_in_no_stack_is_told(
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
