"""Ops between Reshapes that merge dims work on the dims, and compute what they computed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fast_suite import examples
from planner.graph.core.check import check_graph
from planner.graph.core.model import Graph
from planner.graph.rewriting.canonical import canonical
from planner.runtime.judge.reference import Reference
from respelled import Writing

Read = Callable[..., Graph]
MERGED, WIDTHS = (6, 4), (2, 3, 5)


def assert_same(graph: Graph, form: Graph) -> None:
    """What both have holds the same, turned or in another shape nowhere."""
    check_graph(form)
    roll = np.random.default_rng(1)
    values = {name: roll.standard_normal(graph.tensors[name].shape) for name in graph.inputs}
    exact, alike = Reference(graph).step(values), Reference(form).step(values)
    for name in graph.outputs:
        np.testing.assert_allclose(alike[name], exact[name], rtol=1e-9, atol=1e-9)


@st.composite
def rows(draw: st.DrawFn) -> Graph:
    """Ops on [6, 4, width] and on [24, width], and Reshapes between them; some gather all rows, some mix them."""
    writing = Writing(draw(st.randoms(use_true_random=False)), "drawn")
    roll = writing.random
    inputs = [writing.tensor("x", (*MERGED, roll.choice(WIDTHS)))]
    pool, ends = ["x"], []
    for _ in range(draw(st.integers(4, 10))):
        x = roll.choice(pool)
        *_, width = shape = writing.shape(x)
        if len(shape) == 3:
            pool.append(writing.reshape(x, (24, width)))
            continue
        like = [name for name in pool if len(writing.shape(name)) == 2]
        same = [name for name in like if writing.shape(name) == shape]
        match roll.choice("apart apart other product product element add sum gradient softmax turned joined".split()):
            case "apart":
                pool.append(writing.reshape(x, (*MERGED, width)))
            case "other":
                ends.append(writing.reshape(x, (4, 6, width)))
            case "product":
                made = roll.choice(WIDTHS)
                inputs.append(writing.tensor(f"w.{len(inputs)}", (width, made)))
                operands = [x, inputs[-1]]
                if bias := roll.choice([(), (made,), (1, made), (24, 1)]):
                    operands.append(writing.tensor(f"b.{len(inputs)}", bias))
                    inputs.append(operands[-1])
                pool.append(writing.add("Gemm" if bias else "MatMul", tuple(operands), (24, made)))
            case "element":
                pool.append(writing.add("Tanh", (x,), shape))
            case "add":
                pool.append(writing.add("Add", (x, roll.choice(same)), shape))
            case "sum":
                keeps = roll.choice([0, 1])
                axis = writing.ints((roll.choice([0, 1]),))
                kept = tuple(1 if dim == int(writing.constants[axis][0]) else n for dim, n in enumerate(shape))
                made_shape = kept if keeps else tuple(n for n in kept if n != 1)
                ends.append(writing.add("ReduceSum", (x, axis), made_shape, keepdims=keeps))
            case "gradient":
                other = roll.choice(like)
                ends.append(writing.add("Gemm", (x, other), (width, writing.shape(other)[1]), transA=1))
            case "softmax":
                pool.append(writing.add("Softmax", (x,), shape, axis=roll.choice([-1, -1, 0])))
            case "turned":
                turned = writing.add("Sigmoid", (writing.transpose(x, (1, 0)),), shape[::-1])
                pool.append(writing.transpose(turned, (1, 0)))
            case "joined":
                other = roll.choice(like)
                pool.append(writing.add("Concat", (x, other), (24, width + writing.shape(other)[1]), axis=1))
    read = {name for op in writing.ops for name in op.inputs}
    ends += [name for name in pool if name not in read and name != "x"]
    return writing.graph(tuple(inputs), tuple(ends) or (writing.add("Neg", ("x",), writing.shape("x")),))


@examples(100)
@given(rows())
def test_ops_on_merged_rows_compute_the_same_apart(graph: Graph) -> None:
    assert_same(graph, canonical(graph).graph)


def test_a_gradient_sums_over_all_leading_dims(read: Read) -> None:
    graph = read(
        """g (float[4,6,2] x, float[4,6,5] dy) => (float[2,5] dw, float[5] db)
            <int64[2] rows = {24, 2}, int64[2] made = {24, 5}, int64[1] axes = {0}> {
            u = Reshape(x, rows) v = Reshape(dy, made) t = Transpose(u)
            dw = MatMul(t, v) db = ReduceSum <keepdims = 0> (v, axes)
        }"""
    )
    form = canonical(graph).graph
    assert [(op.op_type, *op.inputs[:2]) for op in form.ops if op.op_type != "ReduceSum"] == [("Einsum", "x", "dy")]
    assert form.ops[0].attribute("equation") == "cda,cdb->ab"
    assert_same(graph, form)


@pytest.mark.parametrize("bias", ["", ", float[5] b"])
def test_a_layer_on_rows_is_one_on_the_dims(read: Read, bias: str) -> None:
    op = "Gemm(u, w, b)" if bias else "MatMul(u, w)"
    graph = read(
        f"""g (float[4,6,2] x, float[2,3] w, float[3,5] v{bias.replace("5", "3")}) => (float[4,6,5] y)
            <int64[2] rows = {{24, 2}}, int64[3] apart = {{4, 6, 5}}> {{
            u = Reshape(x, rows) h = {op} r = Relu(h) p = MatMul(r, v) y = Reshape(p, apart)
        }}"""
    )
    form = canonical(graph)
    assert {form.graph.tensors[name].shape[:-1] for op in form.graph.ops for name in op.outputs} == {(4, 6)}
    assert form.in_place["u"] == "x"
    assert_same(graph, form.graph)


@pytest.mark.parametrize(
    "ops",
    ["c = CumSum(h, axis) y = Reshape(c, apart)", "s = Softmax <axis = 0> (h) y = Reshape(s, apart)"],
    ids=["an op that counts rows", "an op along the rows"],
)
def test_rows_stay_merged_where_an_op_needs_them_so(read: Read, ops: str) -> None:
    graph = read(
        f"""g (float[4,6,2] x, float[2,5] w) => (float[4,6,5] y)
            <int64[2] rows = {{24, 2}}, int64[3] apart = {{4, 6, 5}}, int64 axis = {{0}}> {{
            u = Reshape(x, rows) h = MatMul(u, w) {ops}
        }}"""
    )
    assert canonical(graph).graph.ops == graph.ops
