"""Tensors spread within the groups that need them: cuts that nest in another order than their own."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import api, opdefs
from planner.algebra.tiling import Placement, Replicate, Shard, Tiling
from planner.cost.tables import CostTables, Request
from planner.errors import UsageError
from planner.features.zoo.models import mlp
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.graph.files.to_onnx import write_model
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.model.nests import all_nests, find_nests, nests_near
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import Rules

THREE = (2, 2, 2)


def matmul(m: int, k: int, n: int) -> Graph:
    shapes = {"a": (m, k), "b": (k, n), "c": (m, n)}
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name, shape in shapes.items()}
    return Graph("product", tensors, (Op("product", "MatMul", ("a", "b"), ("c",)),), ("a", "b"), ("c",), {})


def planned(graph: Graph, workers: int, rules: Rules | None = None, strategy: str = "tofu") -> Decision:
    ask = SearchRequest(workers, strategy=strategy, partitioned_inputs=True, rules=rules or Rules())
    return decide(graph, opdefs.standard().bind_all(graph), ask)


@pytest.mark.parametrize(
    ("workers", "moved"), [(8, 201_326_592), pytest.param(64, 603_979_776, marks=pytest.mark.slow)]
)
def test_a_product_moves_three_shares_of_each_matrix(workers: int, moved: int) -> None:
    """As the 3D algorithm does: (P_m - 1 + P_n - 1 + P_k - 1) matrices of 67 MB, and no plan moves less."""
    found = planned(matmul(4096, 4096, 4096), workers)
    assert found.moved_bytes == moved
    assert found.certified_gap == 0


def test_of_a_matrix_and_three_cuts_two_tilings_need_it() -> None:
    assert {str(one) for one in all_nests((8, 8), THREE, (), 1000)} == {
        "S(0)@1/2 S(0)/2 S(1)/2",
        "S(0)@1/2 S(1)/2 S(0)/2",
    }
    assert all_nests((8, 8), (2, 2), (), 1000) == ()
    assert all_nests((8, 8, 8), THREE, (), 1000) == (), "a dim is left that no later cut divides"
    assert all_nests((8, 9), (2, 2), (), 1000) == (Tiling.parse("S(0)@1/2 S(0)/2", (2, 2)),), "9 is not even"
    near = nests_near(Tiling.parse("S(1)/2 S(1)/2 S(0)/2", THREE), (8, 8), ())
    assert [str(one) for one in near] == ["S(0)@1/2 S(1)/2 S(0)/2"]
    assert [str(one) for one in nests_near(near[0], (8, 8), ())] == ["S(0)/2 S(1)/2 S(0)/2"]


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=3).map(tuple),
    st.lists(st.integers(2, 3), min_size=2, max_size=3).map(tuple),
)
def test_the_bound_knows_every_tiling_that_moves_offer(shape: tuple[int, ...], ways: tuple[int, ...]) -> None:
    options = [*(Shard(dim) for dim in range(len(shape))), Replicate()]
    offered = {
        near
        for placements in product(options, repeat=len(ways))
        for near in nests_near(Tiling(placements, ways), shape, ())
    }
    assert {one for one in offered if one.is_nested} == set(all_nests(shape, ways, (), 10_000))


def nestings(rank: int, ways: tuple[int, ...]) -> list[Tiling]:
    """Every disjoint tiling, its cuts nested in every order."""
    placements: list[Placement] = [Shard(dim, 1, nest) for dim in range(rank) for nest in range(len(ways))]
    return list(dict.fromkeys(Tiling(one, ways).settled for one in product(placements, repeat=len(ways))))


@pytest.mark.parametrize(
    ("sizes", "ways"), [((8, 8, 8), THREE), ((8, 16, 8), THREE), ((4, 8, 8), (2, 2)), ((9, 9, 3), (3, 3))]
)
def test_no_tilings_in_whatever_order_of_nests_cost_less(sizes: tuple[int, int, int], ways: tuple[int, ...]) -> None:
    """All strategies of one product, and for each the best tiling of each matrix of all orders in which cuts nest."""
    graph = matmul(*sizes)
    ops = opdefs.standard().bind_all(graph)
    tables, [op] = CostTables(), ops
    strategies = tuple(Tiling(one, ways) for one in product([Shard(0), Shard(1), Shard(2)], repeat=len(ways)))
    tilings = tuple(nestings(2, ways))
    ports = [(True, 0, "a"), (True, 1, "b"), (False, 0, "c")]
    made = tables.bytes_of([Request(op, *port[:2], graph.tensors[port[2]], tilings, strategies) for port in ports])
    least = sum(table.min(axis=0) for table in made) + tables.charges(op, strategies)
    found = planned(graph, int(np.prod(ways)))
    assert found.cost <= int(least.min())


def test_what_may_have_it() -> None:
    """The product's matrices, and what element-wise ops make of a weight's gradient; no sum of rows."""
    graph = mlp(2, 16, 32)
    found = find_nests(graph, opdefs.standard().bind_all(graph))
    assert {"w1", "w1.grad", "w1.next", "x1", "w2.next"} <= found.tensors
    assert found.ops
    assert not any(name.endswith("grad_op") for name in found.ops)


def test_strategies_of_the_literature_know_none() -> None:
    graph = matmul(64, 64, 64)
    tofu, recursion = planned(graph, 8), planned(graph, 8, strategy="tofu-recursion")
    assert any(tiling.is_nested for tiling in tofu.tilings.values())
    assert not any(tiling.is_nested for tiling in recursion.tilings.values())
    assert tofu.cost < recursion.cost


def test_rules_hold_for_them() -> None:
    graph = matmul(64, 64, 64)
    pinned = planned(graph, 8, Rules({"b": "S(0)@1/2 S(1)/2 S(0)/2"}))
    assert str(pinned.tilings["b"]) == "S(0)@1/2 S(1)/2 S(0)/2"
    assert pinned.cost == planned(graph, 8).cost
    plain = planned(graph, 8, Rules({"b": "S(0)/2 S(1)/2 S(0)/2"}))
    assert str(plain.tilings["b"]) == "S(0)/2 S(1)/2 S(0)/2"
    without = planned(graph, 8, Rules(forbidden=(("b", "S(0)"),)))
    assert without.tilings["b"].dims == (1, 1, 1)
    with pytest.raises(UsageError, match="pin"):
        planned(graph, 8, Rules({"b": "S(0)@x/2 S(1)/2 S(0)/2"}))


def test_such_a_plan_runs_and_is_explained(tmp_path: Path) -> None:
    write_model(matmul(64, 64, 64), tmp_path / "m.onnx")
    result = api.plan(tmp_path / "m.onnx", gpus=8, inputs="partitioned", out=tmp_path / "plan")
    nested = {name: str(tiling) for name, tiling in result.plan.tilings.items() if tiling.is_nested}
    assert nested
    shown = api.explain(tmp_path / "plan", bounds=True)
    assert {row.name: row.tiling for row in shown.tensors if row.name in nested} == nested
    assert [row.excess for row in shown.distances] == [1]
    run = api.run(tmp_path / "plan", steps=2, verify=True)
    assert run.verified
    assert run.moved_bytes == result.plan.moved_bytes == 3 * 64 * 64 * 4
    assert all(fetch.moved_bytes == fetch.predicted_bytes for fetch in run.fetches)


@pytest.mark.slow
def test_state_goes_into_such_tilings_and_back(tmp_path: Path) -> None:
    """A checkpoint of a plan with a nested weight is resumed by one without, and the other way."""
    write_model(mlp(2, 16, 32), tmp_path / "m.onnx")
    pins = {"plain": {}, "nested": {"w1": "S(0)@1/2 S(1)/2 S(0)/2", "w2": "S(1)@1/2 S(1)/2 S(0)/2"}}
    for name, pin in pins.items():
        api.plan(tmp_path / "m.onnx", gpus=8, pin=pin, out=tmp_path / name)
    losses = {}
    for first, second in (("plain", "nested"), ("nested", "plain")):
        folder = tmp_path / f"from-{first}"
        api.run(tmp_path / first, steps=1, checkpoint_dir=folder, checkpoint_every=1)
        api.run(tmp_path / second, steps=2, checkpoint_dir=folder, resume=True, result=tmp_path / f"{first}.npz")
        losses[first] = np.load(tmp_path / f"{first}.npz")
    assert sorted(losses["plain"]) == sorted(losses["nested"])
    for name in losses["plain"]:
        np.testing.assert_allclose(losses["plain"][name], losses["nested"][name], rtol=1e-5, atol=1e-6)
