"""Shapes that descriptions imply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.graph.core.model import Op, Shape
from planner.tdl.builder import Description, NodeView, Opaque, Sum, at, call, op
from planner.tdl.implied import implied_shapes


def implied(function: Callable[..., Any], *inputs: Shape, outputs: int = 1, **attributes: Any) -> object:
    names = tuple(f"x{slot}" for slot in range(len(inputs)))
    made = tuple(f"y{position}" for position in range(outputs))
    node = Op("the op", "Mine", names, made, tuple(sorted(attributes.items())), "mine")
    description: Description = op("Mine", domain="mine")(function)
    return implied_shapes(description, NodeView(node, inputs, ((),) * outputs, (None,) * len(inputs)))


@pytest.mark.parametrize(
    ("function", "inputs", "shape"),
    [
        (lambda node, X: lambda *i: call("F", X[i]), [(2, 3, 4)], (2, 3, 4)),
        (lambda node, X, B: lambda *i: X[i] + B[i[-1]], [(2, 3), (3,)], (2, 3)),
        (lambda node, A, B: lambda m, n: Sum(lambda k: A[m, k] * B[k, n]), [(2, 3), (3, 5)], (2, 5)),
        (lambda node, A: lambda j, i: A[i, j], [(2, 3)], (3, 2)),
        (lambda node, X: lambda *i: Sum(lambda k: X[(*i, k)]), [(2, 3, 4)], (2, 3)),
        (lambda node, X: lambda: Sum(lambda a, b: X[a, b]), [(2, 3)], ()),
        (lambda node, X, T: lambda n, d: T[at(X[n]), d], [(7,), (100, 8)], (7, 8)),
    ],
    ids=["elementwise", "bias", "matmul", "transpose", "reduction", "scalar", "lookup"],
)
def test_sizes_of_dims_that_variables_run_over(function: Callable[..., Any], inputs: list[Shape], shape: Shape) -> None:
    assert implied(function, *inputs) == (shape,)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda node, X: lambda *i: Opaque("F")(X[...])[i], [(2, 3)]),
        (lambda node, X: lambda i, j: Opaque("F")(X[...])[i, j], [(2, 3)]),
        (lambda node, X: lambda i: X[i // 3, i % 3], [(2, 3)]),
        (lambda node, X: lambda i: X.padded(0.0)[i], [(5,)]),
        (lambda node, X, B: lambda i: X[i] + B[i], [(5,), (6,)]),
        (lambda node, X, B: lambda *i: B[i[-1]], [(2, 3), (3,)]),
        (lambda node, X: lambda i: X[i, 0, 0], [(2, 3)]),
    ],
    ids=["starred opaque", "opaque", "merge", "padded", "two sizes", "any rank", "no fit"],
)
def test_what_is_not_implied(function: Callable[..., Any], inputs: list[Shape]) -> None:
    assert implied(function, *inputs) == (None,)


def test_each_output_has_its_own() -> None:
    def both(node: NodeView, X: Any) -> object:
        return (lambda *i: X[i]), (lambda a: Sum(lambda b: X[a, b]))

    assert implied(both, (2, 3), outputs=2) == ((2, 3), (2,))


@given(st.lists(st.integers(1, 9), max_size=5).map(tuple))
def test_elementwise_on_any_rank(shape: Shape) -> None:
    assert implied(lambda node, A, B: lambda *i: A[i] * B[i], shape, shape) == (shape,)
