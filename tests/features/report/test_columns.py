"""The columns of a strip, and what their ribbons add up to."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner import api
from planner.api.opened import Opened, opened
from planner.cost.by_op import op_bytes
from planner.cost.tables import CostTables
from planner.features.report.page.columns import Column, columns, products_of
from planner.features.zoo.models import build
from planner.graph.files.to_onnx import write_model


def drawn(name: str, folder: Path, batch: int) -> tuple[Opened, tuple[Column, ...]]:
    write_model(build(name, batch=batch), folder / "m.onnx")
    api.plan(folder / "m.onnx", gpus=4, effort="quick", out=folder / "plan")
    plan = opened(folder / "plan")
    return plan, columns(plan.graph, plan.ops, plan.folder.plan, products_of(plan.ops), CostTables())


def test_a_network_of_convolutions_has_a_column_for_each_product_and_all_that_moves_for_it(tmp_path: Path) -> None:
    plan, row = drawn("lenet-5", tmp_path, 32)
    weights = [column.upper.name for column in row if column.upper is not None]
    assert [column.op_type for column in row] == ["Conv", "Conv", "Gemm", "Gemm", "Gemm"]
    assert all(column.has_weights for column in row)
    assert weights == [pair.current for pair in plan.graph.state if len(plan.graph.tensors[pair.current].shape) > 1]
    assert [(column.upper.down, column.upper.across) for column in row if column.upper is not None] == [(0, 1)] * 5
    products = products_of(plan.ops)
    named = (*weights, *(f"{name}.next" for name in weights))
    decided = plan.folder.plan
    moved = {
        bound.op.name: sum(
            amount for _, amount in op_bytes(plan.graph, bound, decided.strategies, decided.tilings, CostTables())
        )
        for bound in plan.ops
    }
    assert sum(moved.values()) == decided.moved_bytes
    counted = [bound.op for bound in plan.ops if bound.op.name in products or not named_apart(bound.op.outputs, named)]
    assert sum(column.upper_bytes + column.lower_bytes for column in row) == sum(moved[op.name] for op in counted)


def named_apart(outputs: tuple[str, ...], names: tuple[str, ...]) -> bool:
    """Whether an op makes nothing that belongs to one of these tensors."""
    return not any(output.startswith(names) for output in outputs)


@pytest.mark.parametrize(("name", "batch"), [("mlp-2x24", 36), pytest.param("rnn-1-1k", 8, marks=pytest.mark.slow)])
def test_a_weight_that_several_products_share_is_counted_once(name: str, batch: int, tmp_path: Path) -> None:
    plan, row = drawn(name, tmp_path, batch)
    assert row
    ribbons = sum(column.upper_bytes + column.lower_bytes for column in row)
    assert 0 < ribbons <= plan.folder.plan.moved_bytes
