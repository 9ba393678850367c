"""Loops that go round as often as is known are their rounds: what the stock runtime makes of the file, they make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import onnx
import pytest

import stock_runtime
from planner import opdefs
from planner.errors import UnsupportedError
from planner.graph.core.model import Graph
from planner.graph.folding import loops
from planner.graph.reading.from_onnx import graph_from_proto
from planner.training.build import build_training_graph

Parse = Callable[..., onnx.ModelProto]
Read = Callable[..., Graph]

TANH = """(int64 i, bool go, float[4, 3] h) => (bool on, float[4, 3] after) {
    on = Identity(go)  m = MatMul(h, w)  after = Tanh(m)
}"""
W = "float[3, 3] w = {0.5, -1, 0.25, 2, 0.5, -0.5, 1, 0.125, -0.75}"
UNROLLED = {
    "as often as a constant says": f"""g (float[4, 3] x) => (float[4, 3] y) <int64 n = {{4}}, bool t = {{1}}, {W}> {{
        y = Loop (n, t, x) <body = b {TANH}>
    }}""",
    "without a condition": f"""g (float[4, 3] x) => (float[4, 3] y) <int64 n = {{3}}, {W}> {{
        y = Loop (n, , x) <body = b {TANH}>
    }}""",
    "as often as a dim is long": f"""g (float[4, 3] x) => (float[4, 3] y) <{W}, bool t = {{1}}, int64 at = {{1}}> {{
        s = Shape(x)
        n = Gather(s, at)
        y = Loop (n, t, x) <body = b {TANH}>
    }}""",
    "outputs of each round, by its number": """
        g (float[4, 3] x) => (float[4, 3] y, float[3, 4, 3] rounds, float[3] numbers)
        <int64 n = {3}, bool t = {1}> {
        y, rounds, numbers = Loop (n, t, x) <body = b (int64 i, bool go, float[4, 3] h)
            => (bool on, float[4, 3] after, float[4, 3] half, float f) <float[3] scale = {0.5, 2.0, 1.0}> {
            on = Identity(go)  f = Cast <to = 1> (i)  k = Add(h, f)  after = Mul(k, scale)
            c = Constant <value = float[3] {0.5, 0.25, 1.0}> ()  half = Mul(h, c)
        }>
    }""",
    "until a counter has counted": """g (float[4] x) => (float[4] y, int64 count)
        <int64 zero = {0}, int64 most = {5}, bool t = {1}> {
        y, count = Loop (, t, x, zero) <body = b (int64 i, bool go, float[4] h, int64 c)
            => (bool on, float[4] after, int64 next) {
            one = Constant <value = int64 {2}> ()  next = Add(c, one)  on = Less(next, most)  after = Tanh(h)
        }>
    }""",
    "a dim that grows": """g (float[2, 3] x) => (float[8, 3] y) <int64 n = {2}, bool t = {1}> {
        y = Loop (n, t, x) <body = b (int64 i, bool go, float[m, 3] h) => (bool on, float[k, 3] after) {
            on = Identity(go)  after = Concat <axis = 0> (h, h)
        }>
    }""",
    "never": f"""g (float[4, 3] x) => (float[4, 3] y) <int64 n = {{0}}, bool t = {{1}}, {W}> {{
        r = Loop (n, t, x) <body = b {TANH}>
        y = Neg(r)
    }}""",
    "what is handed on as it is": """g (float[4] x, float[4] z) => (float[4] y, float[4] same)
        <int64 n = {2}, bool t = {1}> {
        y, same = Loop (n, t, x, z) <body = b (int64 i, bool go, float[4] h, float[4] k)
            => (bool on, float[4] after, float[4] kept) { on = Identity(go)  after = Add(h, k)  kept = Identity(k) }>
    }""",
    "a loop in a loop, and a branch": """g (float[4] x) => (float[4] y)
        <int64 n = {2}, bool t = {1}, int64 first = {0}> {
        y = Loop (n, t, x) <body = b (int64 i, bool go, float[4] h) => (bool on, float[4] after) {
            on = Identity(go)
            k = Loop (n, t, h) <body = c (int64 j, bool gi, float[4] a) => (bool oi, float[4] o) {
                oi = Identity(gi)  s = Add(a, x)  o = Tanh(s)
            }>
            is = Equal(i, first)
            after = If (is) <then_branch = p () => (float[4] u) { u = Neg(k) },
                             else_branch = q () => (float[4] v) { v = Abs(k) }>
        }>
    }""",
    "a scan": """g (float[2] s, float[5, 2] x) => (float[2] last, float[5, 2] y) {
        last, y = Scan <num_scan_inputs = 1, body = b (float[2] c, float[2] r) => (float[2] n, float[2] o) {
            n = Add(c, r)  o = Tanh(n)
        }> (s, x)
    }""",
    "a scan backwards, along other dims": """
        g (float[2] s, float[2, 5] x, float[5, 2] z) => (float[2] last, float[2, 5] y, float[5, 2] w) {
        last, y, w = Scan <num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [1, 0],
            scan_output_axes = [-1, 0], scan_output_directions = [0, 1],
            body = b (float[2] c, float[2] r, float[2] q) => (float[2] n, float[2] o, float[2] p) {
            m = Mul(c, r)  n = Add(m, q)  o = Tanh(n)  p = Identity(q)
        }> (s, x, z)
    }""",
    "a scan of one round": """g (float[2] s, float[1, 2] x) => (float[2] last, float[1, 2] y) {
        last, y = Scan <num_scan_inputs = 1, body = b (float[2] c, float[2] r) => (float[2] n, float[2] o) {
            n = Add(c, r)  o = Tanh(n)
        }> (s, x)
    }""",
    "a list that grows": """g (float[4] x) => (float[3, 4] y) <int64 n = {3}, bool t = {1}> {
        e = SequenceEmpty()
        h, l = Loop (n, t, x, e) <body = b (int64 i, bool go, float[4] a, seq(float[4]) s)
            => (bool on, float[4] after, seq(float[4]) more) {
            on = Identity(go)  after = Tanh(a)  more = SequenceInsert(s, after)
        }>
        y = ConcatFromSequence <axis = 0, new_axis = 1> (l)
    }""",
}  # fmt: skip


@pytest.mark.parametrize("text", UNROLLED.values(), ids=UNROLLED)
def test_its_rounds_are_what_the_runtime_makes_of_it(text: str, parse: Parse) -> None:
    model = parse(text)
    graph = graph_from_proto(model, state_pairs=())
    assert not {"Loop", "Scan", "If"} & {op.op_type for op in graph.ops}
    rng = np.random.default_rng(2)
    feeds = {name: rng.standard_normal(graph.tensors[name].shape).astype(np.float32) for name in graph.inputs}
    expected = stock_runtime.run(model, feeds)
    found = stock_runtime.run(graph, feeds)
    assert expected
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6, atol=1e-6, err_msg=name)


def test_constants_of_a_body_are_one_for_all_rounds(parse: Parse) -> None:
    graph = graph_from_proto(parse(UNROLLED["outputs of each round, by its number"]), state_pairs=())
    weights = [name for name in graph.constants if graph.tensors[name].shape == (3,) and name not in graph.folded]
    assert len(weights) == 2
    assert [len(graph.consumers[name]) for name in weights] == [3, 3]


def test_a_loop_trains(parse: Parse) -> None:
    """By backpropagation through its rounds, in float64 by hand."""
    graph = graph_from_proto(parse(UNROLLED["as often as a constant says"]), state_pairs=())
    step = build_training_graph(graph, loss="mse", optimizer="sgd", learning_rate=1.0)
    rng = np.random.default_rng(7)
    x, target = (rng.standard_normal((4, 3)).astype(np.float32) for _ in range(2))
    found = stock_runtime.run(step, {"x": x, "target": target, **step.initial})
    w = np.asarray(graph.constants["w"], np.float64)
    states = [x.astype(np.float64)]
    for _ in range(4):
        states.append(np.tanh(states[-1] @ w))
    dh, dw = 2 * (states[-1] - target) / 12, np.zeros_like(w)
    for before, after in zip(states[-2::-1], states[:0:-1], strict=True):
        dm = dh * (1 - after**2)
        dw, dh = dw + before.T @ dm, dm @ w.T
    np.testing.assert_allclose(found["loss"], np.mean((states[-1] - target) ** 2), rtol=1e-5)
    np.testing.assert_allclose(found["w.next"], w - dw, rtol=1e-5, atol=1e-6)


def test_a_scan_trains(parse: Parse) -> None:
    text = f"""g (float[5, 4, 3] x, float[4, 3] s) => (float[4, 3] y) <{W}> {{
        y, o = Scan <num_scan_inputs = 1, body = b (float[4, 3] c, float[4, 3] r) => (float[4, 3] n, float[4, 3] p) {{
            m = MatMul(c, w)  a = Add(m, r)  n = Tanh(a)  p = Identity(n)
        }}> (s, x)
    }}"""
    graph = graph_from_proto(parse(text), state_pairs=())
    assert Counter(op.op_type for op in graph.ops)["MatMul"] == 5
    step = build_training_graph(graph, loss="mse", optimizer="sgd", learning_rate=1.0)
    rng = np.random.default_rng(7)
    data = {"x": rng.standard_normal((5, 4, 3)), "s": rng.standard_normal((4, 3)), "target": np.zeros((4, 3))}
    feeds = {name: value.astype(np.float32) for name, value in data.items()}
    found = stock_runtime.run(step, {**feeds, **step.initial})

    def loss(w: np.ndarray) -> float:
        state = data["s"]
        for row in data["x"]:
            state = np.tanh(state @ w + row)
        return float(np.mean(state**2))

    w, direction = np.asarray(graph.constants["w"], np.float64), rng.standard_normal((3, 3))
    slope = (loss(w + 1e-6 * direction) - loss(w - 1e-6 * direction)) / 2e-6
    np.testing.assert_allclose(found["loss"], loss(w), rtol=1e-5)
    np.testing.assert_allclose(np.sum((w - found["w.next"]) * direction), slope, rtol=1e-3)


REFUSED = {
    "the data say how often": ("g (float[4, 3] x, int64 n)", "n", "<body"),
    "a million rounds": ("g (float[4, 3] x)", "million", "1000000 rounds of 3 ops are 3000000 ops; at most 10000"),
    "no end": ("g (float[4, 3] x)", "", "nothing ends it"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("plans", [True, False])
def test_other_loops_are_refused_with_what_there_is_to_say(case: str, plans: bool, parse: Parse) -> None:
    inputs, trips, said = REFUSED[case]
    model = parse(
        f"""{inputs} => (float[4, 3] y) <int64 million = {{1000000}}, bool t = {{1}}, {W}> {{
            y = Loop ({trips}, t, x) <body = b {TANH}>
        }}"""
    )
    with pytest.raises(UnsupportedError) as raised:
        graph_from_proto(model, operators=opdefs.standard() if plans else None)
    text = "\n".join(raised.value.facts)
    assert "control flow" in text
    assert (said in text) is (said != "<body")


def test_a_scan_of_nothing_is_refused(parse: Parse) -> None:
    model = parse("""g (float[2] s, float[0, 2] x) => (float[2] last, float[0, 2] y) {
        last, y = Scan <num_scan_inputs = 1, body = b (float[2] c, float[2] r) => (float[2] n, float[2] o) {
            n = Add(c, r)  o = Tanh(n)
        }> (s, x)
    }""")
    with pytest.raises(UnsupportedError) as raised:
        graph_from_proto(model)
    assert "it never goes round" in "\n".join(raised.value.facts)


def test_rounds_that_leave_before_the_bound(parse: Parse) -> None:
    """A trip count may be a limit that no run reaches: the condition ends the loop."""
    text = UNROLLED["until a counter has counted"].replace("Loop (, t", "Loop (limit, t").replace(
        "int64 zero", "int64 limit = {9223372036854775807}, int64 zero"
    )  # fmt: skip
    graph = graph_from_proto(parse(text), state_pairs=())
    assert [op.op_type for op in graph.ops].count("Tanh") == 3


def test_a_condition_that_holds_too_long(parse: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "MAX_UNROLLED_OPS", 10)
    with pytest.raises(UnsupportedError) as raised:
        graph_from_proto(parse(UNROLLED["until a counter has counted"]), state_pairs=())
    assert "2 rounds of 4 ops, and whatever other loops there are, make 8 ops; at most 10" in raised.value.facts[0]
