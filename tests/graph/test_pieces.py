"""Who reads a piece of what was put together reads what it is a piece of; a product with the identity is no product."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from planner.algebra.region import Region
from planner.graph.core.model import Graph
from planner.graph.rewriting.canonical import canonical

Read = Callable[..., Graph]
_EYE = ", ".join("1" if row == column else "0" for row in range(6) for column in range(6))
_CONSTANTS = f"""int64[2] sizes = {{6, 2}}, int64[2] halves = {{3, 3}}, int64[3] parts = {{2, 6, 2}},
    int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] seven = {{7}}, int64[1] eight = {{8}},
    int64[6] last = {{2, 3, 4, 5, 6, 7}}, int64[4] none = {{0, 0, 0, 0}}, float[6, 6] eye = {{{_EYE}}}"""


def network(read: Read, body: str) -> Graph:
    """A Relu ``r`` of an input and a tensor ``z`` beside it, and what a text makes of them as ``m``."""
    text = f"{{ r = Relu(x) z = Relu(w) {body} y = Neg(m) v = Neg(z) }}"
    return read(f"g (float[4,6] x, float[4,2] w) => (float[4,6] y, float[4,2] v) <{_CONSTANTS}> {text}")


@pytest.mark.parametrize(
    "body",
    [
        "c = Concat<axis=1>(r, z) m, t = Split<axis=1>(c, sizes)",
        "c = Concat<axis=1>(z, r) m = Slice(c, two, eight, one)",
        "c = Concat<axis=1>(z, r) m = Gather<axis=1>(c, last)",
        "s, t = Split<axis=1>(r, halves) m = Concat<axis=-1>(s, t)",
        """s, t = Split<axis=1>(r, halves) c = Concat<axis=1>(t, s) a, b = Split<axis=1>(c, halves)
           m = Concat<axis=1>(b, a)""",
        "m = Concat<axis=1>(r)",
        "m = Pad(r, none)",
        "c = Concat<axis=1>(z, r) d = Concat<axis=1>(c, z) s, m, t = Split<axis=1>(d, parts)",
        "m = MatMul(r, eye)",
        "m = Gemm<transB=1>(r, eye)",
        'a = Einsum<equation="ij,ki->kj">(eye, r) m = Identity(a)',
    ],
)
def test_pieces_are_read_where_they_are(read: Read, body: str) -> None:
    graph = network(read, body)
    ops = [(op.op_type, op.inputs) for op in canonical(graph).graph.ops]
    assert ops == [("Relu", ("x",)), ("Relu", ("w",)), ("Neg", ("r",)), ("Neg", ("z",))]


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("m = Gemm<alpha=2.0>(r, eye)", ["Gemm"]),
        ("m = Gemm(r, eye, r)", ["Gemm"]),
        ('m = Einsum<equation="ij,jj->ij">(r, eye)', ["Einsum"]),
        ("s, t = Split<axis=1>(r, halves) m = Concat<axis=1>(t, s)", ["Split", "Concat"]),
        ("c = Concat<axis=1>(z, r) m = Slice(c, one, seven, one)", ["Concat", "Slice"]),
    ],
)
def test_what_is_something_else_stays(read: Read, body: str, left: list[str]) -> None:
    ops = [op.op_type for op in canonical(network(read, body)).graph.ops]
    assert sorted(ops) == sorted([*left, "Neg", "Neg", "Relu", "Relu"])


def test_a_piece_of_several_is_their_concat_and_what_was_put_together_has_parts(read: Read) -> None:
    graph = read(
        """g (float[4,2] a, float[4,3] b, float[4,2] c) => (float[4,5] y, float[4,2] z) <int64[2] sizes = {5, 2}> {
            r = Relu(a)
            s = Relu(b)
            t = Relu(c)
            w = Concat<axis = 1>(r, s, t)
            u, v = Split<axis = 1>(w, sizes)
            y = Neg(u)
            z = Neg(v)
        }"""
    )
    form = canonical(graph)
    (concat,) = [op for op in form.graph.ops if op.op_type == "Concat"]
    assert (concat.inputs, concat.outputs) == (("r", "s"), ("u",))
    assert form.graph.producer["z"].inputs == ("t",)
    assert form.in_place == {"v": "t"}
    boxes = {"r": Region((0, 0), (4, 2)), "s": Region((0, 2), (4, 5)), "t": Region((0, 5), (4, 7))}
    assert form.in_parts == {"w": boxes}


def test_a_tensor_that_a_rule_names_stays_and_is_read(read: Read) -> None:
    graph = network(read, "c = Concat<axis=1>(r, z) m, t = Split<axis=1>(c, sizes)")
    form = canonical(graph, ("c",))
    assert form.graph.producer["c"].inputs == ("r", "z")
    assert form.graph.producer["m"].op_type == "Split"
    assert not form.in_parts


def test_a_state_is_whole_where_what_is_taken_apart_is_put_together(read: Read) -> None:
    graph = read(
        """g (float[4,6] x, float[6,6] w) => (float[4,6] y) <int64[2] halves = {3, 3}> {
            p = MatMul(x, w)
            s, t = Split<axis=1>(p, halves)
            m = Concat<axis=1>(s, t)
            y = Neg(m)
        }"""
    )
    form = canonical(graph)
    assert [(op.op_type, op.inputs) for op in form.graph.ops] == [("MatMul", ("x", "w")), ("Neg", ("p",))]
    assert not form.in_parts
