"""What depends on no input is known where a shape, a branch, a border or a position depends on it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

import stock_runtime
from planner import opdefs
from planner.errors import ModelError, UnsupportedError
from planner.graph.core.model import Graph
from planner.graph.reading.from_onnx import graph_from_proto

Parse = Callable[..., onnx.ModelProto]
Read = Callable[..., Graph]

SHAPES = {
    "a size is cast": """g (float[6] x) => (float[N, M] y)
        <float rows = {3.0}, int64[1] first = {0}, int64[1] rest = {-1}> {
        i = Cast <to = 7> (rows)
        u = Unsqueeze(i, first)
        s = Concat <axis = 0> (u, rest)
        y = Reshape(x, s)
    }""",
    "scales are multiplied": """g (float[1, 1, 4, 4] x) => (float[N, M, K, L] y)
        <float[2] kept = {1.0, 1.0}, float[2] s = {1.0, 1.5}, float two = {2.0}> {
        t = Mul(s, two)
        q = Concat <axis = 0> (kept, t)
        y = Resize(x, , q)
    }""",
    "sizes are multiplied": """g (float[1, 1, 4, 4] x) => (float[N, M, K, L] y)
        <float[2] s = {2.0, 1.5}, int64[1] b = {2}, int64[1] e = {4}> {
        h = Shape(x)
        hw = Slice(h, b, e)
        nc = Shape <start = 0, end = 2> (x)
        f = Cast <to = 1> (hw)
        t = Mul(f, s)
        i = Cast <to = 7> (t)
        q = Concat <axis = 0> (nc, i)
        y = Resize(x, , , q)
    }""",
    "columns that a mask of floats picks": """g (float[2, 4] x) => (float[2, N] y)
        <float[4] mask = {0.0, 1.0, 0.0, 0.5}> {
        p = NonZero(mask)
        i = Squeeze(p)
        y = Gather <axis = 1> (x, i)
    }""",
    "as many columns as a table has different numbers": """g (float[2, 4] x) => (float[2, N] y)
        <float[5] table = {0.5, 1.0, 0.5, 2.0, 1.0}> {
        u = Unique(table)
        n = Size(u)
        zero = Constant <value_ints = [0]> ()
        one = Constant <value_ints = [1]> ()
        many = Unsqueeze(n, zero)
        y = Slice(x, zero, many, one)
    }""",
    "a scalar of a depth": """g (int64[4] x) => (float[4, N] y)
        <float d = {5.0}, float e = {1.0}, float[2] v = {0.0, 1.0}> {
        f = Add(d, e)
        y = OneHot(x, f, v)
    }""",
}  # fmt: skip


DATA_DEPENDENT = {
    "g (float[4, 6] x) => (float[2, N] y) { z = NonZero(x)  y = Cast <to = 1> (z) }": "without data",
    "g (float[4, 6] x, bool[4] c) => (float[N, 6] y) { y = Compress <axis = 0> (x, c) }": "--value c=NUMBER",
    "g (float[90] x) => (float[N] y) { y = Unique(x) }": "without data-dependent shapes",
    "g (float[1, 6, 4] b, float[1, 1, 6] s) => (int64[N, 3] y) { y = NonMaxSuppression(b, s) }": "without data",
}


@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize("text", DATA_DEPENDENT)
def test_no_hint_says_to_replicate_what_has_no_shape(text: str, repeats: bool, parse: Parse) -> None:
    with pytest.raises(ModelError) as raised:
        graph_from_proto(parse(text), operators=opdefs.standard(repeats_unknown=repeats))
    assert "replicate" not in raised.value.hint
    assert DATA_DEPENDENT[text] in raised.value.hint


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES)
def test_shapes(text: str, parse: Parse, read: Read) -> None:
    graph, model = read(text), parse(text)
    tensor = graph.tensors["x"]
    x = np.arange(tensor.elements).reshape(tensor.shape).astype(tensor.dtype.value)
    expected = stock_runtime.run(model, {"x": x})["y"]
    assert graph.tensors["y"].shape == expected.shape
    np.testing.assert_array_equal(stock_runtime.run(graph, {"x": x})["y"], expected)


def test_a_branch(read: Read) -> None:
    graph = read(
        """g (float[4] x) => (float[4] y) <float a = {1.0}, float b = {2.0}> {
            c = Greater(a, b)
            y = If (c) <then_branch = t () => (float[4] p) { p = Relu(x) },
                        else_branch = e () => (float[4] q) { q = Abs(x) }>
        }"""
    )
    assert [op.op_type for op in graph.ops] == ["Abs"]


def test_a_border(read: Read) -> None:
    graph = read(
        """g (float[4] x) => (float[N] y) <float a = {1.0}, int64[2] p = {1, 1}> {
            n = Neg(a)
            y = Pad(x, p, n)
        }"""
    )
    assert [op.op_type for op in graph.ops] == ["Pad"]
    assert graph.constants["n"] == -1


def test_a_weight_stays_a_weight(read: Read) -> None:
    """It gives a shape here, and is multiplied there: only the shape is worked out."""
    graph = read(
        """g (float[2, 3] x) => (float[N, M] y, float[2, 3] z)
            <float[3] w = {3.0, 2.0, 1.0}, int64[1] b = {0}, int64[1] e = {2}> {
            i = Cast <to = 7> (w)
            s = Slice(i, b, e)
            y = Reshape(x, s)
            f = Exp(w)
            z = Mul(x, f)
        }"""
    )
    assert [op.op_type for op in graph.ops] == ["Reshape", "Exp", "Mul"]
    assert "w" not in graph.folded


def test_what_an_input_decides_is_not_known(read: Read) -> None:
    with pytest.raises(ModelError) as error:
        read(
            """g (float[6] x, float rows) => (float[N, M] y) <int64[1] first = {0}, int64[1] rest = {-1}> {
                i = Cast <to = 7> (rows)
                u = Unsqueeze(i, first)
                s = Concat <axis = 0> (u, rest)
                y = Reshape(x, s)
            }"""
        )
    assert error.value.facts == ("'y': depends on data that is known only at run time (Reshape 'Reshape.y')",)


def test_an_if_that_is_not_known_is_refused_if_it_is_alive(read: Read) -> None:
    text = """g (float[4] x, bool c) => (float[4] y) {{
        d = If (c) <then_branch = t () => (float[4] p) {{ p = Relu(x) }},
                    else_branch = e () => (float[4] q) {{ q = Abs(x) }}>
        y = Neg({read})
    }}"""
    assert [op.op_type for op in read(text.format(read="x")).ops] == ["Neg"]
    with pytest.raises(UnsupportedError) as error:
        read(text.format(read="d"))
    assert error.value.facts == ("op 'If.d' (If): control flow (a subgraph as attribute)",)
