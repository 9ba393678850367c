"""Mistakes of parallel programs that were published, each beside the right program: only the right one is proven."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest

from prove_by_hand import ByHand, whole_of

CONSTANTS = {
    "ROWS": "Constant <value = int64[1] {0}> ()",
    "BOTH": "Constant <value = int64[2] {0, 1}> ()",
    "ONE": "Constant <value = int64[1] {1}> ()",
}


@dataclass(frozen=True)
class Mistake:
    """A model, a right program on two workers, and what a wrong one has instead of some of its lines."""

    model: str
    right: str
    wrong: tuple[tuple[str, str], ...]
    worker: int
    """Where the mistake is."""
    op: str
    """Of which op."""


ROW_SPLIT = Mistake(
    "(float[2,4] x, float[4,3] w) => (float[2,3] y) { h = MatMul(x, w)  y = Relu(h) }",
    """0: x = x[0:2, 0:2]
    0: w = w[0:2, 0:3]
    0: p = h[0:2, 0:3] by MatMul (x, w) { o0 = MatMul(i0, i1) }
    0: s = h[0:2, 0:3] of Sum: [0:2, 0:3] 0.p 1.p
    0: y = y[0:2, 0:3] by Relu (s) { o0 = Relu(i0) }
    0: give y
    1: x = x[0:2, 2:4]
    1: w = w[2:4, 0:3]
    1: p = h[0:2, 0:3] by MatMul (x, w) { o0 = MatMul(i0, i1) }""",
    (("Relu (s)", "Relu (p)"), ("0: s = h[0:2, 0:3] of Sum: [0:2, 0:3] 0.p 1.p\n", "")),
    0,
    "Relu",
)
"""After a product whose weight is cut by rows."""
BETWEEN = Mistake(
    ROW_SPLIT.model,
    ROW_SPLIT.right,
    (
        ("{ o0 = MatMul(i0, i1) }", "{ t = MatMul(i0, i1)  o0 = Relu(t) }"),
        ("{ o0 = Relu(i0) }", "{ o0 = Identity(i0) }"),
    ),
    0,
    "MatMul",
)
GATHER = Mistake(
    "(float[2,4] x) => (float[2,4] y) { y = Softmax(x) }",
    """0: a = x[0:2, 0:2]
    0: x = x[0:2, 0:4] of [0:2, 0:2] 0.a; [0:2, 2:4] 1.a
    0: y = y[0:2, 0:4] by Softmax (x) { o0 = Softmax(i0) }
    0: give y
    1: a = x[0:2, 2:4]
    1: y = y[0:2, 2:4] of [0:2, 2:4] 0.y
    1: give y""",
    (("1: y = y[0:2, 2:4] of [0:2, 2:4] 0.y", "1: y = y[0:2, 2:4] by Softmax (a) { o0 = Softmax(i0) }"),),
    1,
    "Softmax",
)
"""Each worker normalizes the columns that it has."""
BROADCAST = Mistake(
    "(float[2,6] x) => (float[2,6] y) { a = BOTH  m = ReduceMax(x, a)  y = Sub(x, m) }",
    """0: x = x[0:2, 0:3]
    0: p = m[0:1, 0:1] by ReduceMax (x) { a = BOTH  o0 = ReduceMax(i0, a) }
    0: m = m[0:1, 0:1] of Max: [0:1, 0:1] 0.p 1.p
    0: y = y[0:2, 0:3] by Sub (x, m) { o0 = Sub(i0, i1) }
    0: give y
    1: x = x[0:2, 3:6]
    1: p = m[0:1, 0:1] by ReduceMax (x) { a = BOTH  o0 = ReduceMax(i0, a) }
    1: m = m[0:1, 0:1] of [0:1, 0:1] 0.m
    1: y = y[0:2, 3:6] by Sub (x, m) { o0 = Sub(i0, i1) }
    1: give y""",
    (("of [0:1, 0:1] 0.m", "of [0:1, 0:1] 1.p"),),
    1,
    "Sub",
)
"""What one worker has found for all does not reach the other."""
RECEIVED = Mistake(
    "(float[2,2] x, float[2,2] v, float[2,2] w) => (float[2,2] y) { k = MatMul(x, v) q = MatMul(x, w) y = Sub(k, q) }",
    """0: x = x[0:2, 0:2]
    0: v = v[0:2, 0:2]
    0: w = w[0:2, 0:2]
    0: k = k[0:2, 0:2] by MatMul.k (x, v) { o0 = MatMul(i0, i1) }
    0: q = q[0:2, 0:2] by MatMul.q (x, w) { o0 = MatMul(i0, i1) }
    1: k = k[0:2, 0:2] of [0:2, 0:2] 0.k
    1: q = q[0:2, 0:2] of [0:2, 0:2] 0.q
    1: y = y[0:2, 0:2] by Sub (k, q) { o0 = Sub(i0, i1) }
    1: give y""",
    (("[0:2, 0:2] 0.k", "[0:2, 0:2] 0.q"),),
    1,
    "MatMul",
)
"""A receive that takes what another send has sent."""
TWICE = Mistake(
    "(float[2,4] d, float[4,3] x) => (float[2,3] g) { g = MatMul(d, x) }",
    """0: d = d[0:2, 0:2]
    0: x = x[0:2, 0:3]
    0: p = g[0:2, 0:3] by MatMul (d, x) { o0 = MatMul(i0, i1) }
    1: d = d[0:2, 2:4]
    1: x = x[2:4, 0:3]
    1: p = g[0:2, 0:3] by MatMul (d, x) { o0 = MatMul(i0, i1) }
    1: g = g[0:2, 0:3] of Sum: [0:2, 0:3] 0.p 1.p
    1: give g""",
    (("0.p 1.p", "0.p 1.p 1.p"),),
    1,
    "MatMul",
)
"""A gradient is accumulated twice."""
ADDED_TWICE = Mistake(
    TWICE.model,
    TWICE.right,
    (("1: g = ", "1: t = g[0:2, 0:3] by MatMul (p, p) { o0 = Add(i0, i1) }\n1: g = "), ("0.p 1.p", "0.p 1.t")),
    1,
    "MatMul",
)
MEANS = Mistake(
    "(float[6,2] x) => (float[2] m) { a = ROWS  m = ReduceMean <keepdims = 0> (x, a) }",
    """0: x = x[0:4, 0:2]
    0: p = m[0:2] by ReduceMean (x) { a = ROWS t = ReduceMean<keepdims=0>(i0, a) c = f(0.6666667) o0 = Mul(t, c) }
    0: m = m[0:2] of Sum: [0:2] 0.p 1.p
    0: give m
    1: x = x[4:6, 0:2]
    1: p = m[0:2] by ReduceMean (x) { a = ROWS t = ReduceMean<keepdims=0>(i0, a) c = f(0.33333334) o0 = Mul(t, c) }""",
    (("f(0.6666667)", "f(0.5)"), ("f(0.33333334)", "f(0.5)")),
    0,
    "ReduceMean",
)
"""A mean of the workers' means, which have 4 and 2 rows."""
AUXILIARY = Mistake(
    "(float[1,4] d, float[4,1] x, float[1,1] aux) => (float[1,1] y) { l = MatMul(d, x)  y = Add(l, aux) }",
    """0: d = d[0:1, 0:2]
    0: x = x[0:2, 0:1]
    0: aux = aux[0:1, 0:1]
    0: p = l[0:1, 0:1] by MatMul (d, x) { o0 = MatMul(i0, i1) }
    0: a = y[0:1, 0:1] by MatMul+Add (p, aux) { o0 = Add(i0, i1) }
    0: y = y[0:1, 0:1] of Sum: [0:1, 0:1] 0.a 1.a
    0: give y
    1: d = d[0:1, 2:4]
    1: x = x[2:4, 0:1]
    1: aux = aux[0:1, 0:1]
    1: p = l[0:1, 0:1] by MatMul (d, x) { o0 = MatMul(i0, i1) }
    1: a = y[0:1, 0:1] by MatMul+Add (p) { o0 = Identity(i0) }""",
    (
        (
            "1: a = y[0:1, 0:1] by MatMul+Add (p) { o0 = Identity(i0) }",
            "1: a = y[0:1, 0:1] by MatMul+Add (p, aux) { o0 = Add(i0, i1) }",
        ),
    ),
    0,
    "Add",
)
"""An auxiliary loss that all workers have counts once for each."""
EXPERT = Mistake(
    "(float[2,1,2] x, float[2,2,2] w) => (float[2,1,2] y) { y = MatMul(x, w) }",
    """0: x = x[0:1, 0:1, 0:2]
    0: w = w[0:1, 0:2, 0:2]
    0: y = y[0:1, 0:1, 0:2] by MatMul (x, w) { o0 = MatMul(i0, i1) }
    0: give y
    1: x = x[1:2, 0:1, 0:2]
    1: w = w[1:2, 0:2, 0:2]
    1: y = y[1:2, 0:1, 0:2] by MatMul (x, w) { o0 = MatMul(i0, i1) }
    1: give y""",
    (("1: w = w[1:2", "1: w = w[0:1"),),
    1,
    "MatMul",
)
"""An expert's tokens meet another expert."""
NORM_GRADIENT = Mistake(
    """(float[4,2] d, float[4,2] x, float[2] scale) => (float[2] new) {
      a = ROWS  t = Mul(d, x)  g = ReduceSum <keepdims = 0> (t, a)  new = Sub(scale, g) }""",
    "".join(
        f"""{worker}: d = d[{first}:{first + 2}, 0:2]
        {worker}: x = x[{first}:{first + 2}, 0:2]
        {worker}: scale = scale[0:2]
        {worker}: t = t[{first}:{first + 2}, 0:2] by Mul (d, x) {{ o0 = Mul(i0, i1) }}
        {worker}: p = g[0:2] by ReduceSum (t) {{ a = ROWS  o0 = ReduceSum <keepdims = 0> (i0, a) }}
        {worker}: g = g[0:2] of Sum: [0:2] 0.p 1.p
        {worker}: new = new[0:2] by Sub (scale, g) {{ o0 = Sub(i0, i1) }}
        {worker}: give new
        """
        for worker, first in ((0, 0), (1, 2))
    ),
    (("Sub (scale, g)", "Sub (scale, p)"),),
    0,
    "Sub",
)
"""The gradient of LayerNorm's scale, where the sequence is cut, is not reduced."""
NORM = Mistake(
    """(float[3] dense, float[4,2] experts) => (float[1] norm) {
      a = ROWS  b = BOTH  one = ONE
      d = ReduceSumSquare <keepdims = 1> (dense, a)  t = ReduceSumSquare <keepdims = 0> (experts, b)
      e = Reshape(t, one)  s = Add(d, e)  norm = Sqrt(s) }""",
    """0: dense = dense[0:3]
    0: experts = experts[0:2, 0:2]
    0: d = d[0:1] by ReduceSumSquare.d (dense) { a = ROWS  o0 = ReduceSumSquare <keepdims = 1> (i0, a) }
    0: p = t[] by ReduceSumSquare.t (experts) { b = BOTH  o0 = ReduceSumSquare <keepdims = 0> (i0, b) }
    0: t = t[] of Sum: [] 0.p 1.p
    0: e = e[0:1] by Reshape (t) { one = ONE  o0 = Reshape(i0, one) }
    0: norm = norm[0:1] by Add+Sqrt (d, e) { t = Add(i0, i1)  o0 = Sqrt(t) }
    0: give norm
    1: experts = experts[2:4, 0:2]
    1: p = t[] by ReduceSumSquare.t (experts) { b = BOTH  o0 = ReduceSumSquare <keepdims = 0> (i0, b) }""",
    (("0.p 1.p", "0.p"),),
    0,
    "Sqrt",
)
"""A norm over what all have and the experts of each worker lacks the experts of one."""

MISTAKES = {name.lower(): one for name, one in globals().items() if isinstance(one, Mistake)}


def test_each_published_mistake_is_here() -> None:
    assert len(MISTAKES) == 12


@pytest.mark.parametrize("name", MISTAKES)
def test_a_published_mistake_is_caught_and_the_right_program_is_proven(name: str) -> None:
    mistake = MISTAKES[name]
    reference, draw = whole_of(_in_full(mistake.model)), np.random.default_rng(4)
    right = ByHand.read(reference, _in_full(mistake.right))
    assert right.proof.is_proven, right.proof.fault
    assert right.computes_it(draw)
    text = mistake.right
    for old, replacement in mistake.wrong:
        assert old in text
        text = text.replace(old, replacement)
    wrong = ByHand.read(reference, _in_full(text))
    assert not wrong.computes_it(draw)
    fault = wrong.proof.fault
    assert fault is not None
    assert fault.worker == mistake.worker
    assert mistake.op in fault.op


def _in_full(text: str) -> str:
    """Short names of constants, written out."""
    for short, full in CONSTANTS.items():
        text = re.sub(rf"= {short}\b", f"= {full}", text)
    return re.sub(r"= f\((.*?)\)", r"= Constant <value = float {\1}> ()", text)
