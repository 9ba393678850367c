"""One network has one form, in whichever ops it is spelled, and the form computes what the graph computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fast_suite import examples
from planner.features.zoo.models import build
from planner.graph.core.check import check_graph
from planner.graph.core.model import Graph
from planner.graph.rewriting.canonical import canonical
from planner.graph.rewriting.products import product_of
from planner.runtime.judge.compare import errors
from planner.runtime.judge.reference import Reference
from planner.runtime.judge.whole import WholeModel
from respelled import networks, respelled

Read = Callable[..., Graph]


def _types(graph: Graph) -> list[str]:
    return [op.op_type for op in graph.ops]


@dataclass(frozen=True)
class _Held:
    """What a tensor holds: something that was made of inputs, and the order of its dims here."""

    what: object
    order: tuple[int, ...]


def _form(graph: Graph) -> tuple[dict[str, _Held], int]:
    """What each output is made of, down to the inputs, without names; and the number of ops.

    A tensor between two products may lie in either order of its dims: one of them makes it so, and the other reads it
    so. Such forms are the same.
    """
    held: dict[str, _Held] = {}

    def whole(name: str) -> _Held:
        if name not in held:
            value = graph.constants.get(name)
            what = name if value is None else value.tolist()
            held[name] = _Held(what, tuple(range(len(graph.tensors[name].shape))))
        return held[name]

    for op in graph.ops:
        product = product_of(op, graph.tensors)
        if product is None:
            what = (op.op_type, op.attributes, tuple(repr(whole(name)) for name in op.inputs))
            held[op.outputs[0]] = _Held(what, tuple(range(len(graph.tensors[op.outputs[0]].shape))))
            continue
        factors = []
        for name, labels in zip(product.operands, product.labels, strict=True):
            factor = whole(name)
            factors.append((repr(factor.what), tuple(labels[factor.order.index(dim)] for dim in range(len(labels)))))
        factors.sort(key=lambda factor: factor[0])
        numbers = {label: number for number, label in enumerate(dict.fromkeys(chain(*(own for _, own in factors))))}
        made = sorted(numbers[label] for label in product.result)
        what = [(term, tuple(numbers[label] for label in own)) for term, own in factors]
        order = tuple(made.index(numbers[label]) for label in product.result)
        held[op.outputs[0]] = _Held(("product", repr(what), tuple(made)), order)
    return {name: whole(name) for name in graph.outputs}, len(graph.ops)


@examples(100)
@given(networks(), st.integers(0, 2**32))
def test_a_network_in_another_spelling_has_the_same_form(network: Graph, seed: int) -> None:
    other = respelled(network, seed)
    check_graph(other)
    form, same = canonical(network), canonical(other)
    check_graph(same.graph)
    assert _form(same.graph) == _form(form.graph)


@examples(30)
@given(networks(), st.integers(0, 2**32))
def test_the_form_computes_what_the_graph_computes(network: Graph, seed: int) -> None:
    other = respelled(network, seed)
    form = canonical(other)
    rng = np.random.default_rng(seed)
    values = {name: rng.standard_normal(other.tensors[name].shape).astype(np.float32) for name in other.inputs}
    exact, alike = Reference(other).step(values), Reference(form.graph).step(values)
    found = WholeModel(form.graph).step(values)
    assert set(found) >= set(other.outputs) > set()
    for name in other.outputs:
        assert errors(alike[name], exact[name])[0] < 1e-13
        assert errors(found[name], exact[name])[0] < 1e-5


@examples(50)
@given(networks(), st.integers(0, 2**32))
def test_a_form_is_its_own_form_and_its_names_are_the_models(network: Graph, seed: int) -> None:
    other = respelled(network, seed)
    form = canonical(other)
    again = canonical(form.graph)
    assert again.graph is form.graph
    assert not again.in_place
    made = {name for op in other.ops for name in op.outputs}
    there = {name for op in form.graph.ops for name in op.outputs}
    assert form.in_place.keys() | form.in_parts.keys() == made - there
    assert set(form.in_place.values()) <= there | {*other.inputs, *form.in_parts}
    assert {op.name for op in form.graph.ops} <= {op.name for op in other.ops}
    assert (form.graph.inputs, form.graph.outputs) == (other.inputs, other.outputs)


def test_two_matrices_are_a_matmul_or_turned_a_gemm(read: Read) -> None:
    graph = read(
        """g (float[4,6] x, float[5,6] w, float[4,5] v) => (float[4,5] y, float[6,5] z) {
            t = Transpose<perm = [1, 0]>(w)
            y = MatMul(x, t)
            u = Transpose(x)
            z = Gemm(u, v)
        }"""
    )
    form = canonical(graph)
    first, second = form.graph.ops
    assert (first.op_type, first.inputs, first.attributes) == ("Gemm", ("x", "w"), (("transB", 1),))
    assert (second.op_type, second.inputs, second.attributes) == ("Gemm", ("x", "v"), (("transA", 1),))
    assert form.in_place == {"t": "w", "u": "x"}


def test_turned_stacks_are_an_einsum_that_says_which_dims_meet(read: Read) -> None:
    graph = read(
        """g (float[2,5,3,4] q, float[2,7,3,4] k) => (float[2,3,5,7] y) {
            s = Transpose<perm = [0, 2, 1, 3]>(q)
            t = Transpose<perm = [0, 2, 3, 1]>(k)
            y = MatMul(s, t)
        }"""
    )
    (op,) = canonical(graph).graph.ops
    assert (op.op_type, op.inputs) == ("Einsum", ("q", "k"))
    assert op.attributes == (("equation", "acbe,adbe->abcd"),)


def test_a_product_of_merged_stacks_is_one_of_the_stacks(read: Read) -> None:
    """As PyTorch traces attention: samples and heads are one dim for the product."""
    graph = read(
        """g (float[2,5,3,4] q, float[2,7,3,4] k) => (float[2,3,5,7] y)
           <int64[3] left = {6, 5, 4}, int64[3] right = {6, 4, 7}, int64[4] apart = {2, 3, 5, 7}> {
            s = Transpose<perm = [0, 2, 1, 3]>(q)
            t = Transpose<perm = [0, 2, 3, 1]>(k)
            u = Reshape(s, left)
            v = Reshape(t, right)
            p = MatMul(u, v)
            y = Reshape(p, apart)
        }"""
    )
    form = canonical(graph)
    (op,) = form.graph.ops
    assert (op.op_type, op.inputs, op.outputs) == ("Einsum", ("q", "k"), ("y",))
    assert op.attributes == (("equation", "acbe,adbe->abcd"),)
    assert form.in_place == {"s": "q", "t": "k", "u": "q", "v": "k", "p": "y"}
    values = {name: np.random.default_rng(1).standard_normal(graph.tensors[name].shape) for name in graph.inputs}
    exact, alike = Reference(graph).step(values), Reference(form.graph).step(values)
    np.testing.assert_allclose(alike["y"], exact["y"], rtol=1e-12)


def test_merged_stacks_stay_where_they_are_not_told_apart_as_they_were(read: Read) -> None:
    graph = read(
        """g (float[2,3,5,4] q, float[2,3,4,7] k) => (float[a,b,c,d] y)
            <int64[3] left = {6, 5, 4}, int64[3] right = {6, 4, 7}, int64[4] other = {3, 2, 5, 7}> {
            u = Reshape(q, left) v = Reshape(k, right) p = MatMul(u, v) y = Reshape(p, other)
        }"""
    )
    assert "p" in {name for op in canonical(graph).graph.ops for name in op.outputs}


def test_a_product_makes_what_a_transpose_makes_of_it(read: Read) -> None:
    graph = read(
        """g (float[4,6] x, float[4,5] dy) => (float[5,6] dw) {
            t = Transpose(x)
            p = MatMul(t, dy)
            dw = Transpose(p)
        }"""
    )
    form = canonical(graph)
    (op,) = form.graph.ops
    assert (op.op_type, op.inputs, op.outputs) == ("Gemm", ("dy", "x"), ("dw",))
    assert form.in_place == {"t": "x", "p": "dw"}


def test_what_is_scaled_and_added_stays(read: Read) -> None:
    graph = read(
        """g (float[4,6] x, float[5,6] w, float[5] b) => (float[4,5] y) {
            t = Transpose(w)
            y = Gemm<alpha = 0.5, beta = 2.0>(x, t, b)
        }"""
    )
    (op,) = canonical(graph).graph.ops
    assert op.inputs == ("x", "w", "b")
    assert dict(op.attributes) == {"alpha": 0.5, "beta": 2.0, "transB": 1}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("t = Transpose(w) r = Relu(t) y = MatMul(r, v)", "who reads it is no product"),
        ("t = Transpose(w) r = Relu(t) p = MatMul(t, v) q = MatMul(r, v) y = Add(p, q)", "and not only products"),
        ("s = Slice(v, start, end, axis, two) e = Concat<axis = 0>(s, s) y = MatMul(w, e)", "a Slice with a step"),
        ("s = Reshape(w, shape) y = MatMul(s, v)", "a Reshape of another shape"),
        ("s = Gather<axis = 0>(w, rows) y = MatMul(s, v)", "a Gather of rows"),
    ],
)
def test_what_is_no_permutation_of_dims_stays_an_op(read: Read, body: str, why: str) -> None:
    graph = read(
        f"""g (float[6,6] w, float[6,6] v) => (float[6,6] y)
        <int64[1] start = {{0}}, int64[1] end = {{6}}, int64[1] axis = {{0}}, int64[1] two = {{2}},
         int64[2] shape = {{6, 6}}, int64[6] rows = {{0, 2, 4, 1, 3, 5}}> {{ {body} }}"""
        if "shape" not in body
        else f"""g (float[4,9] w, float[6,6] v) => (float[6,6] y) <int64[2] shape = {{6, 6}}> {{ {body} }}"""
    )
    assert canonical(graph).graph is graph, why


def test_whole_numbers_are_not_turned_for_which_the_runtime_has_no_kernel(read: Read) -> None:
    graph = read("g (int32[4,6] x, int32[5,6] w) => (int32[4,5] y) { t = Transpose(w) y = MatMul(x, t) }")
    assert canonical(graph).graph is graph


def test_an_expand_vanishes_where_its_reader_broadcasts(read: Read) -> None:
    graph = read(
        """g (float[4,6] x, float[6] b) => (float[4,6] y, float[8,6] z)
        <int64[2] shape = {4, 6}> {
            e = Expand(b, shape)
            y = Add(x, e)
            z = Concat<axis = 0>(e, x)
        }"""
    )
    form = canonical(graph)
    assert _types(form.graph) == ["Expand", "Add", "Concat"]
    assert form.graph.ops[1].inputs == ("x", "b")
    assert not form.in_place


def test_an_expand_stays_where_nothing_else_has_its_shape(read: Read) -> None:
    graph = read(
        """g (float[1,6] x, float[6] b) => (float[4,6] y) <int64[2] shape = {4, 6}> {
            e = Expand(b, shape) y = Add(x, e)
        }"""
    )
    assert canonical(graph).graph is graph


def test_outputs_stay_and_are_made_by_what_makes_what_they_hold(read: Read) -> None:
    graph = read(
        """g (float[4,6] x) => (float[4,6] y, float[4,6] z, float[4,6] same) {
            r = Relu(x)
            t = Transpose(r)
            y = Transpose(t)
            z = Identity(r)
            same = Identity(x)
        }"""
    )
    form = canonical(graph)
    assert [(op.op_type, op.inputs, op.outputs) for op in form.graph.ops] == [
        ("Relu", ("x",), ("y",)),
        ("Identity", ("y",), ("z",)),
        ("Identity", ("x",), ("same",)),
    ]
    assert form.in_place == {"r": "y", "t": "y"}


def test_a_kept_tensor_stays_and_is_read(read: Read) -> None:
    graph = read("g (float[4,6] x, float[5,6] w) => (float[4,5] y) { t = Transpose(w) y = MatMul(x, t) }")
    assert canonical(graph, ["t"]).graph is graph


def test_reshapes_that_come_back_vanish_and_others_become_one(read: Read) -> None:
    graph = read(
        """g (float[4,6] x) => (float[4,6] y, float[2,12] z)
        <int64[1] flat = {24}, int64[2] back = {4, 6}, int64[2] other = {2, 12}, int64[1] axis = {0}> {
            f = Reshape(x, flat)
            u = Unsqueeze(f, axis)
            b = Reshape(u, back)
            y = Relu(b)
            z = Reshape(u, other)
        }"""
    )
    form = canonical(graph)
    assert [(op.op_type, op.inputs[0], op.outputs[0]) for op in form.graph.ops] == [
        ("Relu", "x", "y"),
        ("Reshape", "x", "z"),
    ]


def test_a_reshape_that_keeps_a_dim_of_what_it_reads_stays_one_of_its_own(read: Read) -> None:
    """Its zero is the first dim of what it reads: 24 of the flat tensor, and 4 of the one before."""
    graph = read(
        """g (float[4,6] x) => (float[24,1] z) <int64[1] flat = {24}, int64[2] kept = {0, 1}> {
            f = Reshape(x, flat)
            z = Reshape(f, kept)
        }"""
    )
    assert canonical(graph).graph is graph


def test_the_attention_of_a_transformer_has_no_transposes_left() -> None:
    graph = build("gpt-2x1024")
    assert _types(graph).count("Transpose") == 24
    form = canonical(graph).graph
    assert "Transpose" not in _types(form)
    assert _types(form).count("Einsum") == 12
