"""What a signature holds, lookups by ``match``, and how many analyses a graph of many shapes takes."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from planner import opdefs
from planner.algebra.tiling import Reducer
from planner.errors import DescriptionError
from planner.features.ops.cases.case import Case, Known, bind_case, ints, make
from planner.graph.core.model import Shape
from planner.tdl.bind import BoundOp
from planner.tdl.builder import NodeView, Opaque, Sum, TensorArg, match, op
from planner.tdl.descriptions import Descriptions
from planner.tdl.expr import VarKind


def bind(case: Case, descriptions: Descriptions | None = None) -> BoundOp:
    return bind_case(case, descriptions or opdefs.standard())[0]


def lookup(rows: int, wanted: int) -> Case:
    return make("Gather", (rows, 5), Known(np.zeros(wanted, dtype=np.int64), constant=False))


def test_a_lookup_is_a_sum_that_can_be_cut() -> None:
    variable = {v.name: v for v in bind(lookup(11, 4)).variables}["v"]
    assert variable.kind is VarKind.REDUCTION
    assert variable.reducer is Reducer.SUM
    assert variable.obstacle == ""
    assert variable.is_matched


def test_a_lookup_does_not_work_on_what_it_does_not_choose() -> None:
    assert bind(lookup(11, 4)).flop == bind(lookup(1000, 4)).flop
    assert prod(bind(lookup(11, 4)).extents) * 2 == prod(bind(lookup(22, 4)).extents)


def test_what_is_scattered_into_can_be_cut_whatever_the_reduction() -> None:
    for reduction in ("none", "add", "mul", "min", "max"):
        indices = Known(np.array([[1], [4]]), constant=False)
        bound = bind(make("ScatterND", (6, 5), indices, (2, 5), reduction=reduction))
        assert [v.obstacle for v in bound.variables if v.name == "i0"] == [""]


def test_match_takes_an_element() -> None:
    @op("Gather")
    def wrong(node: NodeView, X: TensorArg, indices: TensorArg) -> object:
        return lambda i, d: Sum(lambda v: X[v, d] * match(Opaque("f")(indices[i])[()], v))

    with pytest.raises(DescriptionError, match=r"match\(...\) takes an element of a tensor"):
        bind(lookup(4, 2), Descriptions([wrong]))


def test_a_reshape_is_analysed_once_for_each_way_to_merge_and_split() -> None:
    descriptions = opdefs.standard()

    def analyses(before: Shape, after: Shape) -> int:
        bind(make("Reshape", before, ints(*after)), descriptions)
        return descriptions.analyses_made

    assert analyses((2, 7, 64), (2, 7, 4, 16)) == 1
    assert analyses((3, 5, 96), (3, 5, 6, 16)) == 1  # heads of 16, whatever their number
    assert analyses((3, 5, 96), (3, 5, 12, 8)) == 2
    assert analyses((2, 7, 48), (2, 7, 3, 16)) == 2
    assert analyses((2, 1, 48), (2, 1, 3, 16)) == 3  # a dim of size 1 is read at 0


def test_shapes_share_an_analysis() -> None:
    descriptions = opdefs.standard()
    for rows in range(2, 12):
        bind(make("MatMul", (rows, rows + 1), (rows + 1, 2 * rows)), descriptions)
        bind(make("Softmax", (rows, 3)), descriptions)
        bind(lookup(rows, 3), descriptions)
    assert descriptions.analyses_made == 3
