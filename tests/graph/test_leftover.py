"""State is never guessed in silence: what is found beside the known forms of updates, what is refused, what is said."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from planner.errors import UsageError
from planner.graph.core.model import Graph
from planner.graph.step.gradient_products import gradient_products
from planner.graph.step.state_warnings import left_over, state_warnings

Read = Callable[..., Graph]


def step(inputs: str, outputs: str, body: str, weights: str = "", *, loss: str = "float loss, ") -> str:
    """A step whose weight W has the gradient g; v is a bias that follows by a known form."""
    return f"""g (float[8, 6] x, float[8, 4] t, float[6, 4] W, float[4] v{inputs}) => ({loss}float[4] v2{outputs})
    <float lr = {{0.1}}, int64[1] zero = {{0}}{weights}> {{
        h = MatMul(x, W)  y = Add(h, v)  r = Sub(y, t)  q = Mul(r, r)  loss = ReduceMean <keepdims = 0> (q)
        xt = Transpose <perm = [1, 0]> (x)  g = MatMul(xt, r)  u = Mul(g, lr)
        gv = ReduceSum <keepdims = 0> (r, zero)  uv = Mul(gv, lr)  v2 = Sub(v, uv)
        {body}
    }}"""


def pairs(graph: Graph) -> dict[str, str]:
    return {pair.current: pair.following for pair in graph.state}


SOFT = "n = Sub(W, u) s = Sign(n) a = Abs(n) b = Sub(a, lr) m = Max(b, low) W2 = Mul(s, m)"


@pytest.mark.parametrize(
    ("body", "weights"),
    [
        (SOFT, ", float low = {0}"),
        ("n = Sub(W, u) l = ReduceL2 <keepdims = 1> (n) m = Max(l, one) W2 = Div(n, m)", ", float one = {1}"),
        ("m = Neg(u) e = Exp(m) n = Mul(W, e) s = ReduceSum <keepdims = 1> (n) W2 = Div(n, s)", ""),
    ],
    ids=["soft threshold", "projection", "exponentiated gradient"],
)
def test_an_update_of_another_form_is_refused_with_the_other_pairs(read: Read, body: str, weights: str) -> None:
    with pytest.raises(UsageError, match="which input output 'W2' replaces cannot be told") as raised:
        read(step("", ", float[6, 4] W2", body, weights))
    assert raised.value.facts == ("'W2' [6, 4]: 'W'", "the other pairs, which that file must have, too: 'v: v2'")


def test_alone_it_is_refused_with_the_line_to_write(read: Read) -> None:
    text = f"""g (float[8, 6] x, float[8, 4] t, float[6, 4] W) => (float loss, float[6, 4] W2)
    <float lr = {{0.1}}, float low = {{0}}> {{
        h = MatMul(x, W)  r = Sub(h, t)  q = Mul(r, r)  loss = ReduceMean <keepdims = 0> (q)
        xt = Transpose <perm = [1, 0]> (x)  g = MatMul(xt, r)  u = Mul(g, lr)  {SOFT}
    }}"""
    with pytest.raises(UsageError, match="which input output 'W2' replaces cannot be told") as raised:
        read(text)
    assert "one pair a line ('W: W2'); {} for none" in raised.value.hint
    assert pairs(read(text, state_pairs=[("W", "W2")])) == {"W": "W2"}
    assert pairs(read(text, state_pairs=[])) == {}


def test_several_ways_are_refused_and_the_other_pairs_are_listed(read: Read) -> None:
    body = f"{SOFT} k = Sub(V, u) l = Sign(k) V2 = Mul(l, W2)"
    with pytest.raises(UsageError, match="cannot be told") as raised:
        read(step(", float[6, 4] V", ", float[6, 4] W2, float[6, 4] V2", body, ", float low = {0}"))
    assert "the other pairs, which that file must have, too: 'v: v2'" in raised.value.facts


COPY = """g (float16[8, 6] x, float16[8, 4] t, float16[6, 4] half, float[6, 4] W)
    => (float16 loss, float[6, 4] W2, float16[6, 4] half2) <float lr = {0.1}> {
        h = MatMul(x, half)  r = Sub(h, t)  q = Mul(r, r)  loss = ReduceMean <keepdims = 0> (q)
        xt = Transpose <perm = [1, 0]> (x)  g = MatMul(xt, r)  wide = Cast <to = 1> (g)  u = Mul(wide, lr)
        W2 = Sub(W, u)  half2 = Cast <to = 10> (W2)
    }"""


def test_a_copy_in_sixteen_bits_is_refused_with_its_master(read: Read) -> None:
    with pytest.raises(UsageError, match="which input output 'half2' replaces cannot be told") as raised:
        read(COPY)
    assert raised.value.facts[-1] == "the other pairs, which that file must have, too: 'W: W2'"
    assert pairs(read(COPY, state_pairs=[("W", "W2"), ("half", "half2")])) == {"W": "W2", "half": "half2"}


def test_a_buffer_that_nothing_reads_is_named(read: Read) -> None:
    graph = read(step(", float[6, 4] m", ", float[6, 4] m2, float[6, 4] W2", "m2 = Identity(g) W2 = Sub(W, u)"))
    assert pairs(graph) == {"v": "v2", "W": "W2"}
    assert left_over(graph) == (("m", "m2"),)


@pytest.mark.parametrize(
    ("inputs", "outputs", "body", "weights", "expected"),
    [
        (
            ", float[6] k", ", float[6] k2",
            "c = Unsqueeze(k, last) wt = Transpose <perm = [1, 0]> (W) p = MatMul(wt, c) w = MatMul(W, p) "
            "n = ReduceL2 <keepdims = 1> (w) d = Div(w, n) k2 = Squeeze(d, last)",
            ", int64[1] last = {1}", ("k", "k2"),
        ),
        (
            ", float[20, 6] queue", ", float[20, 6] queue2",
            "both = Concat <axis = 0> (queue, x) queue2 = Slice(both, lo, hi)",
            ", int64[1] lo = {8}, int64[1] hi = {28}", ("queue", "queue2"),
        ),
        (
            ", uint32[2] key", ", uint32[2] key2",
            "s = BitShift <direction = \"LEFT\"> (key, one) key2 = BitwiseXor(s, key)",
            ", uint32[2] one = {1, 1}", ("key", "key2"),
        ),
    ],
    ids=["power iteration", "queue", "random key"],
)  # fmt: skip
def test_what_is_left_over_is_named(
    read: Read, inputs: str, outputs: str, body: str, weights: str, expected: tuple[str, str]
) -> None:
    graph = read(step(inputs, f"{outputs}, float[6, 4] W2", f"{body} W2 = Sub(W, u)", weights))
    assert pairs(graph) == {"v": "v2", "W": "W2"}
    assert left_over(graph) == (expected,)
    (warning,) = state_warnings(graph)
    assert f"'{expected[0]}: {expected[1]}' in a file for --state" in warning
    given = read(
        step(inputs, f"{outputs}, float[6, 4] W2", f"{body} W2 = Sub(W, u)", weights), state_pairs=[("W", "W2")]
    )
    assert state_warnings(given) == ()


def test_a_hidden_state_that_the_loss_depends_on_is_named(read: Read) -> None:
    graph = read(
        """g (float[8, 6] x, float[8, 6] s, float[6, 6] W, float[6, 6] U)
        => (float loss, float[8, 6] s2, float[6, 6] W2)
        <float lr = {0.1}> {
            a = MatMul(x, W)  b = MatMul(s, U)  c = Add(a, b)  s2 = Tanh(c)  q = Mul(s2, s2)
            loss = ReduceMean <keepdims = 0> (q)
            xt = Transpose <perm = [1, 0]> (x)  g = MatMul(xt, s2)  u = Mul(g, lr)  W2 = Sub(W, u)
        }"""
    )
    assert pairs(graph) == {"W": "W2"}
    assert ("s", "s2") in left_over(graph)


def test_a_step_needs_no_loss(read: Read) -> None:
    body = "k = Mul(m, decay) m2 = Add(k, g) d = Mul(m2, lr) W2 = Sub(W, d)"
    text = step(", float[6, 4] m", ", float[6, 4] W2, float[6, 4] m2", body, ", float decay = {0.9}", loss="")
    assert pairs(read(text)) == {"v": "v2", "W": "W2", "m": "m2"}
    assert state_warnings(read(text)) == ()


def test_a_loss_may_depend_on_the_next_weights_and_on_a_count(read: Read) -> None:
    graph = read(
        step(
            ", float count", ", float[6, 4] W2, float count2, float after",
            "W2 = Sub(W, u) count2 = Add(count, one) h2 = MatMul(x, W2) r2 = Sub(h2, t) q2 = Mul(r2, r2) "
            "m = ReduceMean <keepdims = 0> (q2) after = Div(m, count2)",
            ", float one = {1}", loss="",
        )
    )  # fmt: skip
    assert pairs(graph) == {"v": "v2", "W": "W2", "count": "count2"}


LOOKAHEAD = (
    "n = Sub(W, u) d = Sub(n, slow) e = Mul(d, half) f = Add(slow, e) A = Where(sync, f, slow) B = Where(sync, A, n)"
)


def test_of_two_ways_to_pair_the_one_that_no_other_output_needs(read: Read) -> None:
    text = step(", float[6, 4] slow, bool sync", ", float[6, 4] A, float[6, 4] B", LOOKAHEAD, ", float half = {0.5}")
    graph = read(text)
    assert pairs(graph) == {"v": "v2", "slow": "A", "W": "B"}
    assert state_warnings(graph) == ()


@pytest.mark.parametrize("average", ["W2", "n"])
def test_an_average_whose_decay_warms_up(read: Read, average: str) -> None:
    """Whether it reads the next weights as an output, or before they become one."""
    body = (
        "n = Sub(W, u) W2 = Identity(n) c2 = Add(c, one) e = Add(c2, ten) f = Div(c2, e) d = Min(f, most) "
        f"k = Mul(ema, d) o = Sub(one, d) l = Mul({average}, o) ema2 = Add(k, l)"
    )
    weights = ", float one = {1}, float ten = {10}, float most = {0.999}"
    graph = read(step(", float[6, 4] ema, float c", ", float[6, 4] W2, float c2, float[6, 4] ema2", body, weights))
    assert pairs(graph) == {"v": "v2", "W": "W2", "c": "c2", "ema": "ema2"}
    assert state_warnings(graph) == ()


def test_a_quotient_of_averages_is_named(read: Read) -> None:
    """As the codebook of a vector quantisation."""
    body = (
        "W2 = Sub(W, u) a = Mul(sums, keep) new = MatMul(chosen, x) b = Mul(new, rest) "
        "sums2 = Add(a, b) c = Mul(sizes, keep) "
        "d = Mul(count, rest) sizes2 = Add(c, d) book2 = Div(sums2, sizes2) e = MatMul(book, W) extra = ReduceSum(e)"
    )
    graph = read(
        step(
            ", float[5, 8] chosen, float[5, 1] count, float[5, 6] book, float[5, 6] sums, float[5, 1] sizes",
            ", float[6, 4] W2, float[5, 6] sums2, float[5, 1] sizes2, float[5, 6] book2, float[1, 1] extra",
            body, ", float keep = {0.99}, float rest = {0.01}",
        )
    )  # fmt: skip
    assert pairs(graph) == {"v": "v2", "W": "W2", "sums": "sums2", "sizes": "sizes2"}
    assert left_over(graph) == (("book", "book2"),)


FORWARD = [
    "g (float[4, 4] x, float[4, 4] W) => (float[4, 4] y) { h = MatMul(x, W) r = Relu(h) y = Add(x, r) }",
    """g (float[2, 4, 4] x, float[4, 4] Q, float[4, 4] K) => (float[2, 4, 4] y) {
        q = MatMul(x, Q) k = MatMul(x, K) kt = Transpose <perm = [0, 2, 1]> (k) s = MatMul(q, kt)
        p = Softmax(s) v = MatMul(p, x) y = Add(x, v) }""",
    """g (float[4, 4] x, float[4, 4] h, float[4, 4] W, float[4, 4] U) => (float[4, 4] h2) {
        a = MatMul(x, W) b = MatMul(h, U) c = Add(a, b) h2 = Tanh(c) }""",
    """g (float[4, 4] x, float[4, 4] W, float[4, 4] t) => (float loss, float[4, 4] y) {
        y = MatMul(x, W) r = Sub(y, t) q = Mul(r, r) loss = ReduceMean <keepdims = 0> (q) }""",
]


@pytest.mark.parametrize("text", FORWARD, ids=["residual", "attention", "recurrent", "loss"])
def test_a_forward_model_is_not_bothered(read: Read, text: str) -> None:
    graph = read(text)
    assert not gradient_products(graph).gradients
    assert pairs(graph) == {}
    assert state_warnings(graph) == ()


def test_a_graph_of_gradients_is_not_bothered(read: Read) -> None:
    text = step("", ", float[6, 4] g, float[4] gv", "").replace("float[4] v2, ", "")
    graph = read(text)
    assert gradient_products(graph).gradients == {"g"}
    assert pairs(graph) == {}
    assert state_warnings(graph) == ()
