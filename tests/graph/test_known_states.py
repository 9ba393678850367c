"""States of steps as people write them: found, or named with the line to write."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from planner.errors import UsageError
from planner.graph.core.model import Graph
from planner.graph.core.notes import evidence_of
from planner.graph.step.state_warnings import left_over, state_warnings

Read = Callable[..., Graph]


def step(inputs: str, outputs: str, weights: str, body: str) -> str:
    """A step of one layer ``x w``, whose gradient is g."""
    return f"""g (float[8, 4] x, float[8, 3] t, float[4, 3] w{inputs}) => ({outputs}) <float lr = {{0.1}}{weights}> {{
        y = MatMul(x, w)  d = Sub(y, t)  xt = Transpose <perm = [1, 0]> (x)  g = MatMul(xt, d)  u = Mul(g, lr)
        {body}
    }}"""


def pairs(graph: Graph) -> dict[str, str]:
    return {pair.current: pair.following for pair in graph.state}


SCHEDULE_FREE = step(
    ", float[4, 3] z, float[4, 3] a, float k", "float[4, 3] o0, float[4, 3] o1, float[4, 3] o2, float o3",
    ", float one = {1}, float b = {0.9}, float nb = {0.1}",
    "o1 = Sub(z, u) o3 = Add(k, one) c = Div(one, o3) nc = Sub(one, c) x1 = Mul(a, nc) x2 = Mul(o1, c) "
    "o2 = Add(x1, x2) y1 = Mul(o1, nb) y2 = Mul(o2, b) o0 = Add(y1, y2)",
)  # fmt: skip
LOSS_SCALE = step(
    ", float s, int64 n", "float[4, 3] o0, float o1, int64 o2",
    ", int64 one = {1}, int64 every = {100}, float two = {2}, float half = {0.5}, int64 zero = {0}",
    "gs = Mul(g, s) nan = IsNaN(gs) wide = Cast <to = 1> (nan) most = ReduceMax <keepdims = 0> (wide) "
    "any = Cast <to = 9> (most) wn = Sub(w, u) o0 = Where(any, w, wn) n1 = Add(n, one) "
    "grow = GreaterOrEqual(n1, every) s2 = Mul(s, two) sg = Where(grow, s2, s) sh = Mul(s, half) "
    "o1 = Where(any, sh, sg) n2 = Where(grow, zero, n1) o2 = Where(any, zero, n2)",
)  # fmt: skip
PRECONDITIONER = step(
    ", float[4, 4] L, float[4, 4] P", "float[4, 3] o0, float[4, 4] o1, float[4, 4] o2",
    ", float b2 = {0.95}, float c15 = {1.5}, float c05 = {0.5}",
    "gt = Transpose <perm = [1, 0]> (g) gl = MatMul(g, gt) l1 = Mul(L, b2) o1 = Add(l1, gl) pg = MatMul(P, g) "
    "v = Mul(pg, lr) o0 = Sub(w, v) po = MatMul(P, o1) pop = MatMul(po, P) p3 = Mul(P, c15) p5 = Mul(pop, c05) "
    "o2 = Sub(p3, p5)",
)  # fmt: skip
QUANTISED = step(
    ", int8[4, 3] m8, float scale", "float loss, float[4, 3] o0, int8[4, 3] o1, float o2",
    ", float b = {0.9}, float most = {127}",
    "q = Mul(d, d) loss = ReduceMean <keepdims = 0> (q) wide = Cast <to = 1> (m8) m = Mul(wide, scale) "
    "k = Mul(m, b) m2 = Add(k, g) a = Abs(m2) top = ReduceMax <keepdims = 0> (a) o2 = Div(top, most) "
    "r = Div(m2, o2) e = Round(r) o1 = Cast <to = 3> (e) v = Mul(m2, lr) o0 = Sub(w, v)",
)  # fmt: skip
ADAN = step(
    ", float[4, 3] old, float[4, 3] m", "float[4, 3] o0, float[4, 3] o1, float[4, 3] o2",
    ", float b = {0.9}, float nb = {0.1}",
    "c = Sub(g, old) o1 = Identity(g) k = Mul(m, b) l = Mul(c, nb) o2 = Add(k, l) s = Add(g, o2) v = Mul(s, lr) "
    "o0 = Sub(w, v)",
)  # fmt: skip
FACTOR = step(
    ", float[3, 2] q", "float[4, 3] o0, float[3, 2] o1", "",
    "p = MatMul(g, q) gt = Transpose <perm = [1, 0]> (g) o1 = MatMul(gt, p) qt = Transpose <perm = [1, 0]> (o1) "
    "low = MatMul(p, qt) v = Mul(low, lr) o0 = Sub(w, v)",
)  # fmt: skip
MOMENTS = """g (float[8, 4] x, float[8, 3] t, float[4, 3] w, float[4] mean, float[4] m2, float n)
    => (float o0, float[4, 3] o1, float[4] o2, float[4] o3, float o4)
    <int64[1] ax = {0}, float eight = {8}, float lr = {0.01}> {
        bm = ReduceMean <keepdims = 0> (x, ax) xc = Sub(x, bm) xq = Mul(xc, xc) bs = ReduceSum <keepdims = 0> (xq, ax)
        o4 = Add(n, eight) dl = Sub(bm, mean) d8 = Mul(dl, eight) dd = Div(d8, o4) o2 = Add(mean, dd) dq = Mul(dl, dl)
        dc = Mul(dq, n) de = Mul(dc, eight) df = Div(de, o4) ms = Add(m2, bs) o3 = Add(ms, df) var = Div(V, N)
        sd = Sqrt(var) xm = Sub(x, M) xn = Div(xm, sd) y = MatMul(xn, w) d = Sub(y, t)
        xt = Transpose <perm = [1, 0]> (xn) g = MatMul(xt, d) u = Mul(g, lr) o1 = Sub(w, u) q = Mul(d, d)
        o0 = ReduceMean <keepdims = 0> (q)
    }"""
OLD = MOMENTS.replace("V, N", "m2, n").replace("(x, M)", "(x, mean)")
NEW = MOMENTS.replace("V, N", "o3, o4").replace("(x, M)", "(x, o2)")


@pytest.mark.parametrize(
    ("text", "expected", "said", "named"),
    [
        (SCHEDULE_FREE, {"z": "o1", "a": "o2", "k": "o3"}, {"z", "a"}, {"w": "o0"}),
        (LOSS_SCALE, {"w": "o0", "s": "o1", "n": "o2"}, set(), {}),
        (PRECONDITIONER, {"w": "o0", "L": "o1", "P": "o2"}, set(), {}),
        (QUANTISED, {"w": "o0"}, set(), {"m8": "o1", "scale": "o2"}),
        (ADAN, {"w": "o0", "m": "o2"}, {"w", "m"}, {"old": "o1"}),
        (FACTOR, {"w": "o0"}, set(), {"q": "o1"}),
        (NEW, {"w": "o1"}, set(), {"mean": "o2", "m2": "o3", "n": "o4"}),
        (OLD, {"w": "o1", "mean": "o2", "m2": "o3", "n": "o4"}, set(), {}),
    ],
    ids=["schedule-free", "loss scale", "preconditioner", "8 bits", "Adan", "PowerSGD", "new moments", "old moments"],
)
def test_a_state_is_found_or_named(
    read: Read, text: str, expected: dict[str, str], said: set[str], named: dict[str, str]
) -> None:
    graph = read(text)
    assert pairs(graph) == expected
    assert dict(left_over(graph)) == named
    evidence = evidence_of(graph.notes)
    assert {one for one, following in expected.items() if "rival" in evidence[following][0]} == said
    warnings = " ".join(state_warnings(graph))
    for current in said | named.keys():
        assert f"'{current}: {(expected | named)[current]}'" in warnings
    assert bool(warnings) == bool(said | named.keys())


def test_every_pair_that_may_be_is_written_out(read: Read) -> None:
    """However many there are."""
    names = range(7)
    inputs = "".join(f", float[3, 2] q{name}" for name in names)
    outputs = "float[4, 3] o, " + ", ".join(f"float[3, 2] r{name}" for name in names)
    body = "o = Sub(w, u) gt = Transpose <perm = [1, 0]> (g) " + " ".join(
        f"p{name} = MatMul(g, q{name}) r{name} = MatMul(gt, p{name})" for name in names
    )
    with pytest.raises(UsageError, match="which input output 'r0' replaces cannot be told") as raised:
        read(step(inputs, outputs, "", body))
    facts = " ".join(raised.value.facts)
    assert "'r0' [3, 2]: 'q0'" in facts
    assert [f"'q{name}: r{name}'" for name in names[1:] if f"'q{name}: r{name}'" not in facts] == []


def test_a_result_is_no_state_beside_a_rate(read: Read) -> None:
    """The loss and a score are one number, as the rate is; the norm of a gradient may be what a step goes on with."""
    body = "v = Mul(g, rate) o = Sub(w, v) q = Mul(d, d) loss = ReduceMean <keepdims = 0> (q) a = Abs(d) "
    text = step(
        ", float rate", "float loss, float score, float[4, 3] o", "", f"{body}score = ReduceMax <keepdims = 0> (a)"
    )
    assert state_warnings(read(text)) == ()
    other = step(
        ", float rate", "float loss, float norm, float[4, 3] o", "", f"{body}norm = ReduceL2 <keepdims = 0> (g)"
    )
    assert left_over(read(other)) == (("rate", "norm"),)


def test_the_loss_of_the_step_before_is_named(read: Read) -> None:
    text = step(
        ", float before", "float loss, float[4, 3] o", "",
        "q = Mul(d, d) loss = ReduceMean <keepdims = 0> (q) is_worse = Less(before, loss) z = Sub(w, u) "
        "o = Where(is_worse, w, z)",
    )  # fmt: skip
    assert left_over(read(text)) == (("before", "loss"),)
