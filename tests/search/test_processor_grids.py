"""SPAA'21's processor grids as a strategy."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from planner import api, opdefs
from planner.cost.contraction import contraction_of
from planner.cost.grids import best_grid
from planner.errors import InfeasibleError
from planner.features.zoo import models as zoo
from planner.features.zoo.models import mlp
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.graph.files.to_onnx import write_model
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.request import SearchRequest


def planned(graph: Graph, workers: int, strategy: str = "distcnn") -> Decision:
    return decide(graph, opdefs.standard().bind_all(graph), SearchRequest(workers, strategy=strategy))


def on_their_grids(found: Decision) -> list[bool]:
    """Of each product and convolution, whether it is cut as its best grid is."""
    verdicts = []
    for op in found.ops:
        if contraction_of(op) is not None:
            grid = best_grid(op, found.workers)
            used: Counter[str] = Counter()
            tiling = found.strategies[op.op.name].tiling
            for dim, ways in zip(tiling.dims, tiling.ways, strict=True):
                name = op.variables[dim].name
                used[name] = max(1, used[name]) * ways
            verdicts.append(grid is not None and used == grid.named(op))
    return verdicts


@pytest.mark.parametrize(
    ("model", "batch", "workers"), [("mlp-5x300", None, 8), ("lenet-5", 64, 4), ("lenet-5", 63, 6)]
)
def test_products_and_convolutions_are_on_their_best_grids(model: str, batch: int | None, workers: int) -> None:
    verdicts = on_their_grids(planned(zoo.build(model, batch=batch), workers))
    assert len(verdicts) > 10
    assert all(verdicts)


@pytest.mark.parametrize(("kib", "ways", "moved"), [(176, "m/2 n/2 k/2", 786_432), (150, "m/2 n/2 n/2", 1_048_576)])
def test_the_grid_depends_on_the_memory_there_is(kib: int, ways: str, moved: int, tmp_path: Path) -> None:
    """SPAA'21, cases 2a and 1a: a sum is shared where there is room for its parts, in steps, and else is not."""
    tensors = {name: Tensor(name, (256, 256), DType.FLOAT32) for name in ("a", "b", "c")}
    graph = Graph("product", tensors, (Op("product", "MatMul", ("a", "b"), ("c",)),), ("a", "b"), ("c",), {})
    write_model(graph, tmp_path / "product.onnx")
    found = api.plan(
        tmp_path / "product.onnx", gpus=8, strategy="distcnn", memory=f"{kib}KiB", models=False, out=tmp_path / "plan"
    )
    assert str(found.plan.strategies["product"]).startswith(f"{ways} in ")
    assert found.plan.moved_bytes == moved
    assert max(found.plan.peak_bytes) <= kib * 1024


def test_tofus_own_search_finds_nothing_dearer() -> None:
    graph = mlp(3, 64, 128)
    assert planned(graph, 8, "tofu").cost <= planned(graph, 8).cost


def test_a_model_without_products_is_refused() -> None:
    tensors = {name: Tensor(name, (16, 16), DType.FLOAT32) for name in ("x", "y")}
    graph = Graph("none", tensors, (Op("relu", "Relu", ("x",), ("y",)),), ("x",), ("y",), {})
    with pytest.raises(InfeasibleError, match=r"no op of .* sums products"):
        planned(graph, 4)
