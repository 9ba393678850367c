"""Names of axes come from roles: of data, of attentions, of convolutions, of tables."""

from __future__ import annotations

import pytest

from planner import opdefs
from planner.algebra.tiling import Tiling
from planner.artifacts.plan import OpStrategy
from planner.features.report.page.axes import Axes
from planner.features.zoo.models import build
from planner.tdl.bind import BoundOp


def axes_of(name: str) -> tuple[Axes, dict[str, BoundOp]]:
    graph = build(name, batch=8)
    ops = opdefs.standard().bind_all(graph)
    return Axes(graph, ops), {bound.op.name: bound for bound in ops}


def strategy_of(bound: BoundOp, *variables: str) -> OpStrategy:
    """Each cut in two, along a variable or, for ``R``, along none."""
    names = tuple(variable.name for variable in bound.variables)
    parts = ("R" if variable == "R" else f"S({names.index(variable)})" for variable in variables)
    return OpStrategy(Tiling.parse(" ".join(f"{part}/2" for part in parts), (2,) * len(variables)), names)


@pytest.mark.parametrize(
    ("tensor", "tiling", "text"),
    [
        ("tokens", "S(0)/2 S(1)/2", "batch/2, sequence/2"),
        ("words", "S(0)/2 R/2", "vocabulary/2, ×2"),
        ("block1.wide.weight", "R/2 S(1)/2 R/2", "×4, dim 1/2"),
        ("block1.attention.qkv.weight", "S(1)/2 P/2", "heads/2, Σ2"),
    ],
)
def test_dims_of_a_transformer_have_names(tensor: str, tiling: str, text: str) -> None:
    axes, _ = axes_of("gpt-1x128-4h-lm")
    assert axes.tiling(tensor, Tiling.parse(tiling, (2,) * len(tiling.split()))) == text


def test_a_variable_that_is_summed_says_so_by_role_or_by_its_own_name() -> None:
    axes, ops = axes_of("gpt-1x128-4h-lm")
    product = ops["block1.narrow"]
    assert axes.strategy("block1.narrow", strategy_of(product, "m", "k", "m")) == "batch/4, sum over k/2"
    output = ops["block1.attention.out"]
    assert axes.strategy("block1.attention.out", strategy_of(output, "k", "R")) == "sum over heads/2, ×2"


def test_a_convolution_has_a_batch_and_channels() -> None:
    axes, ops = axes_of("resnet-50")
    convolution = ops["group1.block1.mid.conv"]
    assert axes.strategy("group1.block1.mid.conv", strategy_of(convolution, "b", "co")) == "batch/2, channels/2"
    assert axes.strategy("group1.block1.mid.conv", strategy_of(convolution, "ci")) == "sum over channels/2"
