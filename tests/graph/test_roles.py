"""Which inputs are state."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import pytest

from planner.errors import ModelError, UsageError
from planner.graph.core.model import Graph, Role
from planner.graph.core.notes import EVIDENCE, evidence_of
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import graph_from_proto

Read = Callable[..., Graph]
Parse = Callable[..., onnx.ModelProto]


def step(inputs: str, outputs: str, body: str, weights: str = "") -> str:
    """A training step of one layer: ``g`` is the gradient of W, ``loss`` its loss; ``body`` is the update."""
    return f"""g (float[8, 4] x, float[4, 4] W{inputs}) => (float loss{outputs}) <float lr = {{0.1}}{weights}> {{
        h = MatMul(x, W)
        q = Mul(h, h)
        loss = ReduceMean <keepdims = 0> (q)
        t = Transpose <perm = [1, 0]> (x)
        g = MatMul(t, h)
        {body}
    }}"""


def pairs(graph: Graph) -> list[tuple[str, str]]:
    return [(pair.current, pair.following) for pair in graph.state]


def test_sgd(read: Read) -> None:
    graph = read(step("", ", float[4, 4] W2", "u = Mul(g, lr)  W2 = Sub(W, u)"))
    assert pairs(graph) == [("W", "W2")]
    assert graph.roles["W"] is Role.STATE
    assert graph.roles["W2"] is Role.NEXT_STATE
    assert graph.roles["x"] is Role.DATA
    assert graph.roles["loss"] is Role.RESULT
    assert graph.roles["g"] is Role.ACTIVATION


def test_momentum_with_weight_decay(read: Read) -> None:
    graph = read(
        step(
            ", float[4, 4] v",
            ", float[4, 4] v2, float[4, 4] W2",
            "d = Mul(W, wd) e = Add(g, d) m = Mul(v, mu) v2 = Add(m, e) u = Mul(v2, lr) W2 = Sub(W, u)",
            ", float mu = {0.9}, float wd = {0.0001}",
        )
    )
    assert pairs(graph) == [("v", "v2"), ("W", "W2")]


def test_a_buffer_that_forgets_fast(read: Read) -> None:
    graph = read(
        step(
            ", float[4, 4] v",
            ", float[4, 4] v2",
            "d = Mul(W, mu) e = Add(g, d) m = Mul(v, mu) v2 = Add(m, e)",
            ", float mu = {0.1}",
        )
    )
    assert pairs(graph) == [("v", "v2")]


def test_adamw_with_a_learning_rate_as_input(read: Read) -> None:
    graph = read(
        step(
            ", float rate, float[4, 4] m, float[4, 4] v",
            ", float[4, 4] W2, float[4, 4] m2, float[4, 4] v2",
            """m_old = Mul(m, b1)  m_new = Mul(g, c1)  m2 = Add(m_old, m_new)
            v_old = Mul(v, b2)  g2 = Mul(g, g)  v_new = Mul(g2, c2)  v2 = Add(v_old, v_new)
            root = Sqrt(v2)  ratio = Div(m2, root)  move = Mul(ratio, rate)
            decay = Mul(rate, wd)  keep = Sub(one, decay)  kept = Mul(W, keep)  W2 = Sub(kept, move)""",
            ", float b1 = {0.9}, float c1 = {0.1}, float b2 = {0.999}, float c2 = {0.001}, float wd = {0.01}, "
            "float one = {1.0}",
        )
    )
    assert pairs(graph) == [("W", "W2"), ("m", "m2"), ("v", "v2")]


def test_an_update_that_is_skipped_or_clipped(read: Read) -> None:
    graph = read(
        step(
            ", bool ok",
            ", float[4, 4] W2",
            "u = Mul(g, lr)  n = Sub(W, u)  c = Clip(n, low, high)  W2 = Where(ok, c, W)",
            ", float low = {-1.0}, float high = {1.0}",
        )
    )
    assert pairs(graph) == [("W", "W2")]


def test_a_counter_and_running_statistics(read: Read) -> None:
    graph = read(
        step(
            ", int64 count, float[4] mean",
            ", int64 count2, float[4] mean2",
            """count2 = Add(count, one)
            batch = ReduceMean <keepdims = 0> (x, axes)  new = Mul(batch, c)
            old = Mul(mean, b)  mean2 = Add(old, new)""",
            ", int64 one = {1}, int64[1] axes = {0}, float b = {0.9}, float c = {0.1}",
        )
    )
    assert pairs(graph) == [("count", "count2"), ("mean", "mean2")]


@pytest.mark.parametrize(
    "body",
    [
        "gradient = Identity(g)",
        "d = Mul(W, wd)  gradient = Add(g, d)",
        "gradient = Mul(W, wd)",
        "a = Abs(W)  gradient = Add(g, a)",
        "gradient = Sub(g, W)",
    ],
)
def test_a_gradient_is_no_next_state(read: Read, body: str) -> None:
    assert pairs(read(step("", ", float[4, 4] gradient", body, ", float wd = {0.0001}"))) == []


def test_a_residual_of_a_forward_model_is_no_next_state(read: Read) -> None:
    graph = read("g (float[4, 4] x, float[4, 4] W) => (float[4, 4] y) { h = MatMul(x, W) r = Relu(h) y = Add(x, r) }")
    assert pairs(graph) == []


WEIGHTS = "<float[4, 4] W = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, float lr = {0.1}>"


@pytest.mark.parametrize("score", ["ReduceMean <keepdims = 0> (s)", "ReduceSum <keepdims = 0> (s)"])
def test_a_forward_model_with_a_score_beside_its_residual_has_no_state(read: Read, score: str) -> None:
    graph = read(
        f"""g (float[8, 4] x) => (float[8, 4] h, float score) {WEIGHTS} {{
            a = MatMul(x, W)  r = Relu(a)  h = Add(x, r)  s = Sigmoid(a)  score = {score}
        }}"""
    )
    assert pairs(graph) == []


def test_one_number_of_a_batch_of_one_is_no_loss(read: Read) -> None:
    graph = read(
        """g (float[1, 4] x, float[4, 4] W) => (float[1, 4] h, float[1, 1] p) <int64[1] axes = {1}> {
            a = MatMul(x, W)  r = Relu(a)  h = Add(x, r)  p = ReduceMean(a, axes)
        }"""
    )
    assert pairs(graph) == []


def test_a_step_beside_frozen_weights_has_state(read: Read) -> None:
    """W stays; the bias b follows its gradient."""
    graph = read(
        f"""g (float[8, 4] x, float[8, 4] b) => (float loss, float[8, 4] b2) {WEIGHTS} {{
            a = MatMul(x, W)  y = Add(a, b)  q = Mul(y, y)  loss = ReduceMean <keepdims = 0> (q)
            u = Mul(y, lr)  b2 = Sub(b, u)
        }}"""
    )
    assert pairs(graph) == [("b", "b2")]


TWO = step(
    ", float[4, 4] V",
    ", float[4, 4] A, float[4, 4] B",
    "s = Add(W, V) u = Mul(g, lr) A = Sub(s, u) h2 = Abs(g) k = Mul(h2, lr) B = Sub(s, k)",
)
"""Either output may replace either input."""


def test_equal_candidates_are_refused(read: Read) -> None:
    with pytest.raises(UsageError, match="which input 2 outputs replace cannot be told") as raised:
        read(TWO)
    assert raised.value.facts == ("'A' [4, 4]: 'W', 'V'", "'B' [4, 4]: 'W', 'V'")


def test_names_tell_equal_candidates_apart(read: Read) -> None:
    graph = read(TWO.replace("B", "W_new").replace("A,", "V_new,").replace("A =", "V_new ="))
    assert sorted(pairs(graph)) == [("V", "V_new"), ("W", "W_new")]
    assert {kinds for kinds, _ in evidence_of(graph.notes).values()} == {("name", "shape", "dataflow")}


@pytest.mark.parametrize("name", ["next_V", "V_updated", "new_V", "V_next"])
def test_a_name_is_enough_where_the_update_has_another_form(read: Read, name: str) -> None:
    graph = read(step(", float[4, 4] V", f", float[4, 4] {name}", f"{name} = MatMul(V, g)"))
    assert pairs(graph) == [("V", name)]
    assert evidence_of(graph.notes)[name] == (("name", "shape"), "it is named after the input")


@pytest.mark.parametrize(
    ("inputs", "outputs", "body", "facts"),
    [
        (
            ", float[4, 4] V", ", float[4, 4] A", "s = Add(W, V) u = Mul(g, lr) A = Sub(s, u)",
            ("'A' [4, 4]: 'W', 'V'",),
        ),
        (
            "", ", float[4, 4] A, float[4, 4] B", "u = Mul(g, lr) A = Sub(W, u) B = Clip(A, lr)",
            ("'A' [4, 4]: 'W'", "'B' [4, 4]: 'W'"),
        ),
    ],
    ids=["two inputs", "two outputs"],
)  # fmt: skip
def test_what_cannot_be_told_is_refused(
    read: Read, inputs: str, outputs: str, body: str, facts: tuple[str, ...]
) -> None:
    text = step(inputs, outputs, body)
    with pytest.raises(UsageError, match="cannot be told") as raised:
        read(text)
    assert raised.value.facts == facts
    assert "--state pairs.yaml" in raised.value.hint
    assert pairs(read(text, state_pairs=[("W", "A")])) == [("W", "A")]
    assert pairs(read(text, state_pairs=[])) == []


def test_what_the_loss_is_made_of_is_no_next_state(read: Read) -> None:
    """A prediction's error reads its target with a factor of 1, as an update reads what it replaces."""
    graph = read(
        """g (float[4, 4] x, float[4, 4] W, float[4, 4] target)
        => (float loss, float[4, 4] error, float[4, 4] off) {
            y = MatMul(x, W)  error = Sub(target, y)  off = Sub(y, target)
            q = Mul(error, off)  loss = ReduceMean <keepdims = 0> (q)
        }"""
    )
    assert pairs(graph) == []


def test_running_statistics_and_scattered_updates(read: Read) -> None:
    graph = read(
        """g (float[8, 4] x, float[4] s, float[4] o, float[4] m, float[4] v, float[9, 4] table, int64[8, 1] rows)
        => (float loss, float[4] m2, float[4] v2, float[9, 4] table2) {
            y, m2, v2 = BatchNormalization <training_mode = 1, momentum = 0.8> (x, s, o, m, v)
            loss = ReduceMean <keepdims = 0> (y)
            table2 = ScatterND <reduction = "add"> (table, rows, y)
        }"""
    )
    assert pairs(graph) == [("m", "m2"), ("v", "v2"), ("table", "table2")]
    assert "times 0.8" in evidence_of(graph.notes)["m2"][1]


def test_evidence_is_carried_by_the_file_until_pairs_are_given(read: Read) -> None:
    graph = read(TWO.replace("A,", "A_next,").replace("A =", "W_next =").replace("A_next,", "W_next,"))
    written = to_model(graph)
    assert graph_from_proto(written).notes == graph.notes
    assert evidence_of(graph_from_proto(written, state_pairs=pairs(graph)).notes) == {}
    with pytest.raises(ModelError, match="not a table of reasons"):
        evidence_of({EVIDENCE: "[]"})


def test_pairs_that_are_given_are_used_and_checked(read: Read, parse: Parse) -> None:
    text = step(", float[4, 4] V", ", float[4, 4] A, float[4, 4] B", "A = Relu(g)  B = Abs(V)")
    assert pairs(read(text)) == []
    assert pairs(read(text, state_pairs=[("W", "A")])) == [("W", "A")]
    model = parse(text)
    model.metadata_props.add(key="tofu.state", value='[["V", "A"], ["W", "B"]]')
    assert pairs(graph_from_proto(model)) == [("V", "A"), ("W", "B")]
    assert pairs(graph_from_proto(model, state_pairs=[])) == []
    with pytest.raises(UsageError) as raised:
        read(text, state_pairs=[("W", "A"), ("W", "loss"), ("q", "B")])
    assert raised.value.facts == (
        "'q' is not an input of the model",
        "'W' is in two pairs",
        "'W' is [4, 4] of float32, but 'loss' is [] of float32",
    )


def test_many_pairs_that_are_none(read: Read) -> None:
    """A pass over each: by comparing every name with every other they would take an hour."""
    names = [(f"s{number}", f"n{number}") for number in range(100_000)]
    with pytest.raises(UsageError) as raised:
        read(step("", "", ""), state_pairs=[*names, ("W", "loss"), ("W", "loss")])
    assert len(raised.value.facts) == 200_004
