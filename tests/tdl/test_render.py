"""Descriptions as text, against golden lines."""

from __future__ import annotations

import numpy as np
import pytest

from planner import opdefs
from planner.features.ops.cases.case import Case, Known, bind_case, ints, make
from planner.tdl.render import render

GOLDEN = [
    (
        make("Conv", (2, 3, 8, 7), (4, 3, 3, 3), (4,), strides=(2, 2), pads=(1, 1, 1, 1)),
        [
            "Y[b, co, y0, y1] = Sum_{ci, k0, k1} X[b, ci, 2*y0 + k0 - 1, 2*y1 + k1 - 1] * W[co, ci, k0, k1] + B[co]"
            "  (X is 0 outside)"
        ],
    ),
    (
        make("Conv", (2, 4, 6), (6, 2, 3), group=2),
        ["Y[b, co, y0] = Sum_{ci, k0} X[b, 2*(co // 3) + ci, y0 + k0] * W[co, ci, k0]  (X is 0 outside)"],
    ),
    (
        make("ConvTranspose", (1, 3, 4, 4), (3, 4, 2, 3), strides=(3, 2), dilations=(1, 2), pads=(0, 2, 1, 0)),
        [
            "Y[b, co, y0, y1] = Sum_{ci, k0, k1} X[b, ci, (y0 - k0)/3, (y1 - 2*k1 + 2)/2] * W[ci, co, k0, k1]"
            "  (X is 0 outside)"
        ],
    ),
    (
        make("MaxPool", (2, 3, 8), kernel_shape=(2,), strides=(2,)),
        ["Y[b, c, y0] = Max_{k0<2} X[b, c, 2*y0 + k0]  (X is -inf outside)"],
    ),
    (
        make("Gemm", (6, 5), (6, 4), (4,), transA=1, alpha=0.5),
        ["Y[m, n] = 0.5 * Sum_{k} A[k, m] * B[k, n] + C[n]"],
    ),
    (make("MatMul", (2, 1, 4, 6), (3, 6, 5)), ["Y[b0, b1, m, n] = Sum_{k} A[b0, 0, m, k] * B[b1, k, n]"]),
    (make("Reshape", (3, 4), ints(2, 6)), ["Y[i0, i1] = X[(6*i0 + i1) // 4, (6*i0 + i1) % 4]"]),
    (make("Reshape", (7, 64), ints(7, 4, 16)), ["Y[i0, i1, i2] = X[i0, 16*i1 + i2]"]),
    (make("Split", (4, 6), axis=1, num_outputs=2, outputs=2), ["Y0[i0, i1] = X[i0, i1]", "Y1[i0, i1] = X[i0, i1 + 3]"]),
    (make("Slice", (9,), ints(7), ints(0), ints(0), ints(-2)), ["Y[i0] = X[-2*i0 + 7]"]),
    (make("Softmax", (4, 5), axis=0), ["Y[i0, i1] = <Softmax>(X[:, i1])[i0]"]),
    (make("Gather", (7, 5), Known(np.array([1, 2]), False)), ["Y[i0, i1] = Sum_{v} X[v, i1] * [indices[i0] == v]"]),
    (make("ReduceL2", (4, 5), ints(1)), ["Y[i0, i1] = Sqrt(Sum_{r0} X[i0, r0] * X[i0, r0])"]),
    (make("ReduceMean", (4, 5), ints(0), keepdims=0), ["Y[i0] = (Sum_{r0} X[r0, i0]) / 4"]),
    (make("Where", (4, 5), (5,), ()), ["Y[i0, i1] = Where(in0[i0, i1], in1[i1], in2)"]),
]


@pytest.mark.parametrize(("case", "lines"), GOLDEN, ids=lambda value: str(value) if isinstance(value, Case) else "")
def test_rendered_mathematics(case: Case, lines: list[str]) -> None:
    if case.op_type == "Where":
        case = Case("Where", (Known(np.ones((4, 5), dtype=bool), False), *case.operands[1:]))
    bound = bind_case(case, opdefs.standard())[0]
    assert list(render(bound.description, bound.node)) == lines
