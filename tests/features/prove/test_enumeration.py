"""All small programs of a kind: none that is wrong is proven, and none that is right is given a counterexample."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from prove_by_hand import ByHand, whole_of

PRODUCT = "(float[2,3] a, float[3,2] b) => (float[2,2] y) { y = MatMul(a, b) }"


def _products(extent: int = 3) -> Iterator[str]:
    """Two workers multiply any parts of the 3 that are summed, and one joins them in any way."""
    parts = [(lo, hi) for lo in range(extent) for hi in range(lo + 1, extent + 1)]
    for (a, b), (c, d), (e, f) in itertools.product(parts, parts, parts):
        if f - e != d - c:
            continue  # the product has no such shapes
        for join in ("of Sum: [0:2, 0:2] 0.p 1.p", "of Max: [0:2, 0:2] 0.p 1.p", "of [0:2, 0:2] 1.p"):
            yield f"""0: a = a[0:2, {a}:{b}]
            0: b = b[{a}:{b}, 0:2]
            0: p = y[0:2, 0:2] by MatMul (a, b) {{ o0 = MatMul(i0, i1) }}
            1: a = a[0:2, {c}:{d}]
            1: b = b[{e}:{f}, 0:2]
            1: p = y[0:2, 0:2] by MatMul (a, b) {{ o0 = MatMul(i0, i1) }}
            0: y = y[0:2, 0:2] {join}
            0: give y"""


WINDOW = "(float[1,1,6] x, float[1,1,3] w) => (float[1,1,6] y) { y = Conv <pads = [1, 1]> (x, w) }"


def _windows() -> Iterator[str]:
    """Worker 1 makes one half of a convolution from any part of the input with any padding."""
    for low, high, before, after in itertools.product(range(6), range(1, 7), range(3), range(3)):
        if high - low + before + after - 2 != 3:
            continue
        for first in (0, 3):
            yield f"""0: x = x[0:1, 0:1, 0:6]
            0: w = w[0:1, 0:1, 0:3]
            0: y = y[0:1, 0:1, 0:6] by Conv (x, w) {{ o0 = Conv <pads = [1, 1]> (i0, i1) }}
            0: z = y[0:1, 0:1, {3 - first}:{6 - first}] of [0:1, 0:1, {3 - first}:{6 - first}] 0.y
            0: give z
            1: x = x[0:1, 0:1, {low}:{high}]
            1: w = w[0:1, 0:1, 0:3]
            1: y = y[0:1, 0:1, {first}:{first + 3}] by Conv (x, w) {{ o0 = Conv <pads = [{before}, {after}]> (i0, i1) }}
            1: give y"""


MOVED = """(float[2,6] x) => (float[3,2,2] y) {
  s = Constant <value = int64[3] {2, 3, 2}> ()  r = Reshape(x, s)  y = Transpose <perm = [1, 0, 2]> (r) }"""


def _moved() -> Iterator[str]:
    """A worker takes any columns of the input, and gives them as any place of what is moved, in any order of dims."""
    for low, place, perm in itertools.product(range(5), range(3), itertools.permutations(range(3))):
        sizes = [(1, 2, 2)[perm.index(dim)] for dim in range(3)]
        body = f"r = Reshape(i0, s)  o0 = Transpose <perm = {list(perm)}> (r) }}"
        whole_body = body.replace(str(list(perm)), "[1, 0, 2]")
        yield f"""0: x = x[0:2, 0:6]
        0: y = y[0:3, 0:2, 0:2] by Reshape+Transpose (x) {{ {_sizes(2, 3, 2)}  {whole_body}
        0: give y
        1: x = x[0:2, {low}:{low + 2}]
        1: y = y[{place}:{place + 1}, 0:2, 0:2] by Reshape+Transpose (x) {{ {_sizes(*sizes)}  {body}
        1: give y"""


def _number(value: int) -> str:
    return f"c = Constant <value = float {{{value}.0}}> ()"


def _sizes(*sizes: int) -> str:
    return f"s = Constant <value = int64[{len(sizes)}] {{{', '.join(map(str, sizes))}}}> ()"


SHARES = """(float[5,2] x) => (float[2] m) {
  a = Constant <value = int64[1] {0}> ()  m = ReduceMean <keepdims = 0> (x, a) }"""


def _shares() -> Iterator[str]:
    """Two workers have any rows of a mean, and divide their sums by any numbers."""
    axes, total = "a = Constant <value = int64[1] {0}> ()", "t = ReduceSum <keepdims = 0> (i0, a)"
    for first, second, divisor, other_divisor in itertools.product(range(1, 5), range(5), range(1, 6), range(4, 6)):
        parts = [
            f"""{worker}: x = x[{low}:{high}, 0:2]
            {worker}: p = m[0:2] by ReduceMean (x) {{ {axes}  {total}  {_number(by)}  o0 = Div(t, c) }}"""
            for worker, low, high, by in ((0, 0, first, divisor), (1, second, 5, other_divisor))
        ]
        yield "\n".join((*parts, "0: m = m[0:2] of Sum: [0:2] 0.p 1.p", "0: give m"))


LOOKED_UP = "(float[4,2] x, int64[6] i) => (float[6,2] y) { y = Gather(x, i) }"
ADDED = """(float[4,2] x, int64[3,1] i, float[3,2] u) => (float[4,2] y) {
  y = ScatterND <reduction = "add"> (x, i, u) }"""


def _looked_up() -> Iterator[str]:
    """Two workers look any rows up, in any columns; what one finds is given, or the sum. Index -1 is the last row."""
    rows = [(low, high) for low in range(4) for high in range(low + 1, 5)]
    for (a, b), (c, d), (e, f) in itertools.product(rows, rows, ((0, 2), (1, 2))):
        box = f"[0:6, {e}:{f}]"
        joins = f"of Sum: {box} 0.p 1.p", *([f"of {box} 0.p"] if (c, d) == (0, 4) else [])
        for join in joins:
            yield f"""0: x = x[{a}:{b}, {e}:{f}]
            0: i = i[0:6]
            0: p = y{box} by Gather (x, i) {{ o0 = Gather(i0, i1) }}
            1: x = x[{c}:{d}, {e}:{f}]
            1: i = i[0:6]
            1: p = y{box} by Gather (x, i) {{ o0 = Gather(i0, i1) }}
            0: y = y{box} {join}
            0: give y
            2: x = x[0:4, 0:2]
            2: i = i[0:6]
            2: y = y[0:6, 0:2] by Gather (x, i) {{ o0 = Gather(i0, i1) }}
            2: give y"""


def _added() -> Iterator[str]:
    """A worker adds what there is to any rows, as any rows of the result."""
    added = 'o0 = ScatterND <reduction = "add"> (i0, i1, i2)'
    for low, size, first in itertools.product(range(4), range(1, 5), range(4)):
        if max(low, first) + size <= 4:
            yield f"""0: x = x[0:4, 0:2]
            0: i = i[0:3, 0:1]
            0: u = u[0:3, 0:2]
            0: y = y[0:4, 0:2] by ScatterND (x, i, u) {{ {added} }}
            0: give y
            1: x = x[{low}:{low + size}, 0:2]
            1: i = i[0:3, 0:1]
            1: u = u[0:3, 0:2]
            1: y = y[{first}:{first + size}, 0:2] by ScatterND (x, i, u) {{ {added} }}
            1: give y"""


JOINED = "(float[2,2] a, float[4,2] b) => (float[6,2] y) { c = Concat <axis = 0> (a, b)  y = Relu(c) }"


def _joined() -> Iterator[str]:
    """Worker 1 has any rows of either input, as any rows of what is made of both when they are joined."""
    for (name, low), place in itertools.product((("a", 0), ("b", 0), ("b", 1), ("b", 2)), range(5)):
        yield f"""0: a = a[0:2, 0:2]
        0: b = b[0:4, 0:2]
        0: y = y[0:6, 0:2] by Concat+Relu (a, b) {{ t = Concat <axis = 0> (i0, i1)  o0 = Relu(t) }}
        0: give y
        1: x = {name}[{low}:{low + 2}, 0:2]
        1: y = y[{place}:{place + 2}, 0:2] by Concat+Relu (x) {{ t = Identity(i0)  o0 = Relu(t) }}
        1: give y"""


FAMILIES = {
    "added": (ADDED, _added, 0),
    "joined": (JOINED, _joined, 0),
    "looked up": (LOOKED_UP, _looked_up, 0),
    "products": (PRODUCT, _products, 0),
    "windows": (WINDOW, _windows, 0),
    "moved": (MOVED, _moved, 6),
    "shares": (SHARES, _shares, 0),
}
"""Models, programs, and how many of these are right and not proven: of two ops at once, where what the first makes here
is no part of what the model's first op makes."""


def _judged(name: str, every: int) -> Counter[tuple[bool, bool]]:
    """Executes and proves programs of a family; by whether they are right and whether they are proven, how many are."""
    model, programs, _ = FAMILIES[name]
    reference, draw = whole_of(model), np.random.default_rng(6)
    tally: Counter[tuple[bool, bool]] = Counter()
    for text in itertools.islice(programs(), 0, None, every):
        program = ByHand.read(reference, text)
        is_right, proof = program.computes_it(draw), program.proof
        assert is_right or not proof.is_proven, text
        assert not is_right or proof.fault is None or not proof.fault.is_counterexample, (text, proof.fault)
        tally[is_right, proof.is_proven] += 1
    return tally


@pytest.mark.parametrize("name", FAMILIES)
def test_a_proof_agrees_with_small_programs(name: str) -> None:
    tally = _judged(name, 7)
    assert tally[False, False]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.nightly
def test_a_proof_agrees_with_every_small_program(name: str) -> None:
    tally = _judged(name, 1)
    assert tally[True, True]
    assert tally[False, False]
    assert tally[True, False] == FAMILIES[name][2]
