"""Dims of outputs that go in steps: groups of elements that one value of an index variable stands for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fast_suite import examples
from planner import opdefs
from planner.algebra.delivery import made_tiling
from planner.algebra.region import index_space
from planner.algebra.tiling import Shard, Tiling
from planner.errors import DescriptionError
from planner.features.ops.strategies import enumerate_strategies
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.search.model.dims import find_directions
from planner.tdl.bind import BoundOp
from planner.tdl.builder import Ix, NodeView, Opaque, Sum, TensorArg, Val, op, over
from planner.tdl.descriptions import Descriptions
from planner.tdl.render import render


@op("Grouped", domain="mine")
def grouped(node: NodeView, X: TensorArg) -> object:
    """Groups side by side in the last dim, and again in a dim of their own."""
    size = int(node.attribute("size"))

    def group(b: Ix, g: Ix) -> Val:
        return Sum(over(("r",), lambda r: X[b, g * size + r]), extents=(size,))

    return (
        over(("b", "g"), lambda b, g: Opaque("flat")(group(b, g))[()], steps={"g": size}),
        over(("b", "g", "d"), lambda b, g, d: Opaque("apart")(group(b, g))[d]),
    )


def bound(batch: int, groups: int, size: int, width: int | None = None) -> tuple[BoundOp, Graph]:
    shapes = {"x": (batch, groups * size), "y": (batch, width or groups * size), "z": (batch, groups, size)}
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name, shape in shapes.items()}
    one = Op("the op", "Grouped", ("x",), ("y", "z"), (("size", size),), "mine")
    graph = Graph("one", tensors, (one,), ("x",), ("y", "z"), {}, domains={"mine": 1})
    return Descriptions([grouped]).bind(one, graph), graph


@given(st.integers(1, 5), st.integers(1, 7), st.integers(1, 4), st.lists(st.integers(2, 4), min_size=1, max_size=2))
@examples(60)
def test_what_workers_make_is_the_tiling_that_the_strategy_makes(
    batch: int, groups: int, size: int, ways: list[int]
) -> None:
    one, graph = bound(batch, groups, size)
    assert dict(zip([variable.name for variable in one.variables], one.extents, strict=True)) | {"r": size} == {
        "b": batch, "g": groups, "d": size, "r": size,
    }  # fmt: skip
    numbers = [one.variable_number(name) for name in "bg"]
    strategies = [candidate.strategy for candidate in enumerate_strategies(one, *ways)]
    assert all(placement.dim in numbers for strategy in strategies for placement in strategy.placements)  # type: ignore[union-attr]
    for strategy in strategies:
        for position, name in enumerate(("y", "z")):
            dims, steps = one.analysis.outputs[position], one.analysis.steps_of(position)
            assert dims is not None
            made = made_tiling(strategy, dims, one.reducers(strategy), steps).boxes(
                index_space(graph.tensors[name].shape)
            )
            found = one.makes(one.ranges(strategy), position)
            np.testing.assert_array_equal(found.lo, made.lo)
            np.testing.assert_array_equal(found.hi, made.hi)


def test_a_cut_falls_between_groups() -> None:
    one, _ = bound(2, 3, 4)
    strategy = Tiling((Shard(one.variable_number("g")),), (2,))
    assert one.makes(one.ranges(strategy), 0).hi.tolist() == [[2, 8], [2, 12]]
    assert one.makes(one.ranges(strategy), 1).hi.tolist() == [[2, 2, 4], [2, 3, 4]]


def test_a_step_is_a_block_for_what_reads_the_dim() -> None:
    one, graph = bound(2, 3, 4)
    relu = Op("relu", "Relu", ("y",), ("r",))
    tensors = {**graph.tensors, "r": Tensor("r", (2, 12), DType.FLOAT32)}
    graph = Graph("two", tensors, (one.op, relu), ("x",), ("r", "z"), {}, domains={"mine": 1})
    directions = find_directions(graph, opdefs.standard(grouped).bind_all(graph))
    assert directions.blocks_of("tensor", "r") == directions.blocks_of("op", "relu") == ((), (4,))


def test_the_mathematics_shows_the_steps() -> None:
    one, _ = bound(2, 3, 4)
    flat, apart = render(one.description, one.node)
    assert flat.startswith("Y0[b, 4*g : 4*g + 4] = ")
    assert apart.startswith("Y1[b, g, d] = ")


def test_a_dim_that_does_not_go_in_steps_is_refused() -> None:
    with pytest.raises(DescriptionError, match="a dim of 13 elements does not go in steps of 4"):
        bound(2, 3, 4, width=13)
