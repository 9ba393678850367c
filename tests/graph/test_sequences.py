"""Sequences of known lengths at known positions are tensors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

import stock_runtime
from planner.errors import UnsupportedError
from planner.graph.core.model import Graph

Parse = Callable[..., onnx.ModelProto]
Read = Callable[..., Graph]

TEXTS = {
    "one of each length": """{ s = SplitToSequence <axis = 1> (x)  t = SequenceAt(s, two)  y = Neg(t) }""",
    "without the dim": """{ s = SplitToSequence <axis = -1, keepdims = 0> (x)  t = SequenceAt(s, last)  y = Neg(t) }""",
    "of equal lengths and a rest": """{ s = SplitToSequence <axis = 1> (x, two)
        t = SequenceAt(s, last)  y = Neg(t) }""",
    "of lengths": """{ s = SplitToSequence <axis = 1, keepdims = 0> (x, lengths)
        t = SequenceAt(s, one)  y = Neg(t) }""",
    "put together": """{
        a = Neg(x)  s = SequenceConstruct(x, a, x)  t = SequenceAt(s, one)  u = SequenceAt(s, zero)  y = Sub(t, u) }""",
    "concatenated": """{ a = Neg(x)  s = SequenceConstruct(x, a)  y = ConcatFromSequence <axis = 1> (s) }""",
    "stacked": """{ a = Neg(x)  s = SequenceConstruct(x, a)  y = ConcatFromSequence <axis = -1, new_axis = 1> (s) }""",
    "inserted and erased": """{
        a = Neg(x)  b = Exp(x)
        e = SequenceEmpty()  f = SequenceInsert(e, a)  g = SequenceInsert(f, x)  h = SequenceInsert(g, b, last)
        i = SequenceErase(h, zero)  j = Identity(i)
        y = ConcatFromSequence <axis = 0> (j) }""",
    "counted": """{
        s = SplitToSequence <axis = 1> (x)  n = SequenceLength(s)  m = Sub(n, one)
        t = SequenceAt(s, m)  y = Neg(t) }""",
    "split and joined": """{
        s = SplitToSequence <axis = 1> (x)  t = SequenceErase(s)  y = ConcatFromSequence <axis = 0> (t) }""",
    "at a position that is computed": """{
        s = SplitToSequence <axis = 1> (x)  p = Mul(half, four)  i = Cast <to = 7> (p)
        t = SequenceAt(s, i)  y = Neg(t) }""",
    "in a branch": """{
        s = SplitToSequence <axis = 1> (x)  n = SequenceLength(s)  c = Less(n, two)
        y = If (c) <then_branch = t () => (float[2, 1] p) { p = SequenceAt(s, zero) },
                    else_branch = e () => (float[2, 1] q) { r = SequenceAt(s, one)  q = Neg(r) }> }""",
}  # fmt: skip
CONSTANTS = (
    "<int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64 last = {-1}, int64[2] lengths = {1, 4}, "
    "float half = {0.5}, float four = {4.0}>"
)


def written(body: str, inputs: str = "float[2, 5] x", outputs: str = "float[N, M] y") -> str:
    return f"g ({inputs}) => ({outputs}) {CONSTANTS} {body}"


@pytest.mark.parametrize("body", TEXTS.values(), ids=TEXTS)
def test_every_operator(body: str, parse: Parse, read: Read) -> None:
    rank = {"without the dim": 1, "stacked": 3}.get(next(name for name, text in TEXTS.items() if text == body), 2)
    text = written(body, outputs=f"float[{', '.join('NMK'[:rank])}] y")
    x = np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)
    expected = stock_runtime.run(parse(text), {"x": x})["y"]
    graph = read(text)
    assert not any("Sequence" in op.op_type for op in graph.ops)
    assert graph.tensors["y"].shape == expected.shape
    np.testing.assert_array_equal(stock_runtime.run(graph, {"x": x})["y"], expected)


REFUSED = {
    "op 'SequenceAt.t' (SequenceAt): its position in a sequence is known only at run time": (
        "{ s = SplitToSequence <axis = 1> (x)  t = SequenceAt(s, i)  y = Neg(t) }"
    ),
    "op 'SequenceAt.t' (SequenceAt): position 2 of a sequence of 1": (
        "{ s = SequenceConstruct(x)  t = SequenceAt(s, two)  y = Neg(t) }"
    ),
    "op 'SplitToSequence.s' (SplitToSequence): the lengths of a sequence's elements are known only at run time": (
        "{ s = SplitToSequence <axis = 1> (x, i)  t = SequenceAt(s, zero)  y = Neg(t) }"
    ),
    "op 'SequenceErase.t' (SequenceErase): position -1 of a sequence of 0": (
        "{ s = SequenceEmpty()  t = SequenceErase(s)  u = SequenceInsert(t, x)  y = SequenceAt(u, zero) }"
    ),
    "op 'SplitToSequence.s' (SplitToSequence): a dim of 2 split into 1, 4": (
        "{ s = SplitToSequence(x, lengths)  t = SequenceAt(s, zero)  y = Neg(t) }"
    ),
    "op 'ConcatFromSequence.y' (ConcatFromSequence): a Concat of a sequence without elements": (
        "{ s = SequenceEmpty()  y = ConcatFromSequence <axis = 0> (s) }"
    ),
}


@pytest.mark.parametrize(("fact", "body"), REFUSED.items())
def test_refused_where_it_is_not_known_or_not_there(fact: str, body: str, read: Read) -> None:
    with pytest.raises(UnsupportedError) as error:
        read(written(body, inputs="float[2, 5] x, int64 i"))
    assert fact in error.value.facts
