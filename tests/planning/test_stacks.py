"""Equal ops beside each other are planned as ops of a stack where that costs less, and run as such."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planner import api, opdefs
from planner.graph.model import Attribute, DType, Graph, Op, Tensor
from planner.graph.rewriting.canonical import canonical
from planner.graph.to_onnx import write_model
from planner.planning.bodies import decide_with_bodies
from planner.planning.stacks import decide_with_stacks, stacks_in
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import NO_RULES, Rules

NUMBERS = {"mu": 0.95, "lr": 0.02, "a": 3.4445, "b": -4.775, "c": 2.0315}
ROUNDS = 5


class _Writing:
    def __init__(self) -> None:
        self.tensors = {name: Tensor(name, (), DType.FLOAT32) for name in NUMBERS}
        self.ops: list[Op] = []

    def op(self, op_type: str, inputs: tuple[str, ...], shape: tuple[int, ...], made: str, **stated: Attribute) -> str:
        self.tensors[made] = Tensor(made, shape, DType.FLOAT32)
        self.ops.append(Op(f"op.{made}", op_type, inputs, (made,), tuple(sorted(stated.items()))))
        return made

    def orthogonalised(self, x: str, lane: str, stack: tuple[int, ...], size: int) -> str:
        """Five Newton-Schulz steps (Jordan 2024, Muon), of a matrix or of a stack of them."""
        shape, perm = (*stack, size, size), (*range(len(stack)), len(stack) + 1, len(stack))
        for number in range(ROUNDS):
            own = f"{lane}.{number}"
            turned = self.op("Transpose", (x,), shape, f"{own}.t", perm=perm)
            square = self.op("MatMul", (x, turned), shape, f"{own}.square")
            fourth = self.op("MatMul", (square, square), shape, f"{own}.fourth")
            both = self.op(
                "Add",
                (
                    self.op("Mul", (square, "b"), shape, f"{own}.by_b"),
                    self.op("Mul", (fourth, "c"), shape, f"{own}.by_c"),
                ),
                shape,
                f"{own}.both",
            )
            times = self.op("MatMul", (both, x), shape, f"{own}.times")
            x = self.op("Add", (self.op("Mul", (x, "a"), shape, f"{own}.by_a"), times), shape, f"{own}.next")
        return x


def momentum(count: int, size: int, *, is_loop: bool) -> Graph:
    """A step of an optimizer that makes the momentum of equal matrices orthogonal: in a loop, or as a stack."""
    write, shape = _Writing(), (size, size)
    following = []
    for i in range(count):
        write.tensors.update({f"{name}{i}": Tensor(f"{name}{i}", shape, DType.FLOAT32) for name in "wmg"})
        kept = write.op("Mul", (f"m{i}", "mu"), shape, f"kept{i}")
        following.append(write.op("Add", (kept, f"g{i}"), shape, f"m{i}.next"))
    constants: dict[str, np.ndarray] = {name: np.array(value, np.float32) for name, value in NUMBERS.items()}
    if is_loop:
        made = [write.orthogonalised(name, f"lane{i}", (), size) for i, name in enumerate(following)]
    else:
        constants |= {"axis": np.array([0]), "parts": np.array([1] * count)}
        write.tensors |= {name: Tensor(name, constants[name].shape, DType.INT64) for name in ("axis", "parts")}
        layers = tuple(write.op("Unsqueeze", (name, "axis"), (1, *shape), f"{name}.layer") for name in following)
        whole = write.op("Concat", layers, (count, *shape), "stack", axis=0)
        result = write.orthogonalised(whole, "all", (count,), size)
        parts = tuple(f"part{i}" for i in range(count))
        write.tensors.update({name: Tensor(name, (1, *shape), DType.FLOAT32) for name in parts})
        write.ops.append(Op("split", "Split", (result, "parts"), parts, (("axis", 0),)))
        made = [write.op("Squeeze", (part, "axis"), shape, f"{part}.matrix") for part in parts]
    for i, name in enumerate(made):
        change = write.op("Mul", (name, "lr"), shape, f"change{i}")
        write.op("Sub", (f"w{i}", change), shape, f"w{i}.next")
    inputs = tuple(f"{name}{i}" for i in range(count) for name in "wmg")
    outputs = tuple(f"{name}{i}.next" for i in range(count) for name in "wm")
    return Graph("momentum", write.tensors, tuple(write.ops), inputs, outputs, constants)


@pytest.mark.parametrize("is_loop", [True, False])
def test_each_of_equal_matrices_has_one_owner(is_loop: bool) -> None:
    """Every matrix comes to its owner and goes back: 7/8 of it twice, of eight of 2,048 x 2,048 on eight workers."""
    graph = canonical(momentum(8, 2048, is_loop=is_loop)).graph
    found = decide_with_stacks(graph, opdefs.standard(), SearchRequest(8, effort="quick"))
    assert found.moved_bytes == 2 * 7 * 2048 * 2048 * 4


def test_a_stack_that_saves_nothing_is_not_taken() -> None:
    graph = canonical(momentum(3, 8, is_loop=True)).graph
    ask = SearchRequest(2)
    plain = decide_with_bodies(graph, opdefs.standard(), ask)
    found = decide_with_stacks(graph, opdefs.standard(), ask)
    assert found.cost <= plain.cost
    assert found.graph is plain.graph or found.cost < plain.cost


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "count"), [(2, 2), (3, 4), (4, 4)])
def test_a_stack_runs_as_its_model_does(tmp_path: Path, workers: int, count: int) -> None:
    write_model(momentum(count, 48, is_loop=True), tmp_path / "step.onnx")
    planned = api.plan(tmp_path / "step.onnx", gpus=workers, out=tmp_path / "plan")
    assert set(planned.plan.stacked.values()) == {count}
    assert json.loads((tmp_path / "plan" / "plan.json").read_text())["stacked"] == planned.plan.stacked
    result = api.run(tmp_path / "plan", steps=2, verify=True)
    assert result.verified, result.difference()
    assert result.moved_bytes == result.predicted_bytes == planned.plan.moved_bytes
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
