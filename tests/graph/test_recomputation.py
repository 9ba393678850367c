"""Activations that are computed again: which may be, what the copies are and read, and that they make the same bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from drawn_inputs import sample
from planner.descriptions import in_force
from planner.errors import UsageError
from planner.features.zoo import models as zoo
from planner.graph.core.check import check_graph
from planner.graph.core.model import Graph
from planner.graph.decompositions.randomness import STEP, lower_randomness
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import graph_from_proto
from planner.graph.rewriting.recomputation import Activations, originals, recomputable, recomputed
from planner.graph.step.passes import passes_of
from planner.runtime.engine.core.sessions import SessionMaker

BY_HAND = """<ir_version: 10, opset_import: ["" : 21]>
g (float[6, 4] x, float[6, 5] t, float[4, 8] w, float[8, 5] v, float[8] m)
    => (float loss, float[4, 8] w2, float[8, 5] v2, float[8] m2) <float rate = {0.1}, float kept = {0.9}> {
    h = MatMul (x, w)
    n = Mul (h, h)
    a = Tanh (n)
    y = MatMul (a, v)
    axes = Constant <value_ints = [0]> ()
    mean = ReduceMean <keepdims = 0> (a, axes)
    old = Mul (m, kept)
    m2 = Add (old, mean)
    e = Sub (y, t)
    square = Mul (e, e)
    loss = ReduceSum <keepdims = 0> (square)
    dy = Add (e, e)
    at = Transpose (a)
    dv = MatMul (at, dy)
    vt = Transpose (v)
    da = MatMul (dy, vt)
    aa = Mul (a, a)
    aada = Mul (aa, da)
    dn = Sub (da, aada)
    hh = Add (h, h)
    dh = Mul (dn, hh)
    xt = Transpose (x)
    dw = MatMul (xt, dh)
    wr = Mul (dw, rate)
    w2 = Sub (w, wr)
    vr = Mul (dv, rate)
    v2 = Sub (v, vr)
}"""
RANDOM = "kept = {0.9}, float ratio = {0.5}, bool train = {1}"
STATES = (("w", "w2"), ("v", "v2"), ("m", "m2"))


@pytest.fixture(scope="module")
def by_hand() -> Graph:
    """A step that no tool of ours wrote, with a running mean of what the backward pass reads."""
    return graph_from_proto(onnx.parser.parse_model(BY_HAND), state_pairs=STATES)


def ops_before(graph: Graph, name: str) -> list[tuple[str, tuple[str, ...]]]:
    """Every op up to one, with what it reads."""
    found = []
    for op in graph.ops:
        found.append((op.outputs[0], op.inputs))
        if op.outputs[0] == name:
            break
    return found


def values_of(graph: Graph) -> dict[str, np.ndarray]:
    return sample(graph, graph.inputs, 1)


def outputs(graph: Graph, values: dict[str, np.ndarray]) -> list[bytes]:
    """The bits of all outputs, every op executed as it stands."""
    session = SessionMaker(1).session(to_model(replace(graph, initial={}, state=(), notes={})), is_literal=True)
    return [value.tobytes() for value in session.run(list(graph.outputs), values)]


def test_passes_of_a_step_by_hand(by_hand: Graph) -> None:
    passes = passes_of(by_hand)
    made = {op.name: op.outputs[0] for op in by_hand.ops}
    forward, backward = ({made[name] for name in names} for names in (passes.forward, passes.backward))
    assert forward == {"h", "n", "a", "y", "e", "square", "loss"}
    assert backward == {
        "dy",
        "at",
        "dv",
        "vt",
        "da",
        "aa",
        "aada",
        "dn",
        "hh",
        "dh",
        "xt",
        "dw",
        "wr",
        "w2",
        "vr",
        "v2",
    }
    assert recomputable(by_hand) == ("h", "a", "e")


def test_what_is_computed_ahead_is_forward(by_hand: Graph) -> None:
    """What the file computes for the backward pass before the loss is an activation; where the loss is last, too."""
    ahead = sorted(by_hand.ops, key=lambda op: op.outputs[0] not in ("h", "n", "a", "aa"))
    assert recomputable(replace(by_hand, ops=tuple(ahead))) == ("h", "a", "aa", "e")
    late = sorted(by_hand.ops, key=lambda op: op.outputs[0] in ("square", "loss"))
    assert recomputable(replace(by_hand, ops=tuple(late))) == ("h", "a", "dy", "at")


def test_what_is_between_is_not_kept(by_hand: Graph) -> None:
    activations = Activations(by_hand)
    assert activations.closed({"a"}) == {"a", "n"}
    assert activations.closed({"a", "h"}) == {"a", "n", "h"}
    others = [replace(op, inputs=("n", *op.inputs[1:])) if op.outputs[0] == "mean" else op for op in by_hand.ops]
    assert Activations(replace(by_hand, ops=tuple(others))).closed({"a"}) == {"a"}, "others read n"


def test_copies_stand_before_their_first_reader(by_hand: Graph) -> None:
    rewritten = recomputed(by_hand, {"a", "n"})
    check_graph(rewritten)
    assert ops_before(rewritten, "at")[-3:] == [
        ("n.again", ("h", "h")),
        ("a.again", ("n.again",)),
        ("at", ("a.again",)),
    ]
    read = {op.outputs[0]: op.inputs for op in rewritten.ops}
    assert read["aa"] == ("a.again", "a.again")
    assert read["mean"][0] == "a", "a running mean is not of the backward pass"
    assert originals(by_hand, rewritten)["a.again"] == "a"
    assert len(rewritten.ops) == len(by_hand.ops) + 2


def test_what_is_not_named_is_kept(by_hand: Graph) -> None:
    """And one copy serves all: hh reads the copy of h from which a is computed again."""
    assert ops_before(recomputed(by_hand, {"a"}), "at")[-2][1] == ("n",)
    rewritten = recomputed(by_hand, {"h", "n", "a"})
    read = {op.outputs[0]: op.inputs for op in rewritten.ops}
    assert read["n.again"] == read["hh"] == ("h.again", "h.again")
    assert [op.outputs[0] for op in rewritten.ops].count("h.again") == 1


def test_what_nobody_reads_has_no_copy(by_hand: Graph) -> None:
    assert recomputed(by_hand, ()) is by_hand
    rewritten = recomputed(by_hand, {"n"})
    assert rewritten.ops == by_hand.ops


def test_names_do_not_clash(by_hand: Graph) -> None:
    taken = replace(
        by_hand,
        ops=tuple(replace(op, name="n.again") if op.outputs[0] == "square" else op for op in by_hand.ops),
    )
    rewritten = recomputed(taken, {"a", "n"})
    assert {"n.again2", "a.again2"} <= rewritten.tensors.keys()
    assert originals(taken, rewritten)["n.again2"] == "n"


def test_a_forward_model_has_no_backward_pass(by_hand: Graph) -> None:
    ops = tuple(op for op in by_hand.ops if op.outputs[0] in ("h", "n", "a", "y"))
    forward = replace(by_hand, ops=ops, outputs=("y",), state=())
    with pytest.raises(UsageError, match="no backward pass"):
        recomputable(forward)


@pytest.mark.parametrize("name", ["lenet-5", "by_hand"])
def test_the_same_bits(name: str, by_hand: Graph) -> None:
    graph = by_hand if name == "by_hand" else lower_randomness(zoo.build(name, batch=2))
    activations = Activations(graph)
    rewritten = recomputed(graph, activations.closed(activations.held))
    check_graph(rewritten)
    assert len(rewritten.ops) > len(graph.ops)
    values = values_of(graph)
    assert outputs(rewritten, values) == outputs(graph, values)


def test_a_graph_inside_of_an_op_is_copied_with_it() -> None:
    """And what that reads by name from around it is read from copies, too."""
    branches = (
        "then_branch = t () => (float[6, 8] q) { q = Tanh (n) }, else_branch = e () => (float[6, 8] q) {q = Neg (n)}"
    )
    text = BY_HAND.replace("a = Tanh (n)", f"p = If (yes) <{branches}>\n    a = Sigmoid (p)")
    model = onnx.parser.parse_model(text.replace("float[8] m)", "float[8] m, bool yes)"))
    graph = graph_from_proto(model, state_pairs=STATES, operators=in_force(None, "replicate")[0])
    rewritten = recomputed(graph, {"n", "p", "a"})
    read = {op.outputs[0]: op.inputs for op in rewritten.ops}
    assert read["p.again"] == ("yes", "n.again")
    values = values_of(graph)
    assert outputs(rewritten, values) == outputs(graph, values)


def test_a_copy_draws_the_same_numbers() -> None:
    """Dropout's mask is computed again from the op's number, the step and the index."""
    text = BY_HAND.replace("y = MatMul (a, v)", "d = Dropout (a, ratio, train)\n    y = MatMul (d, v)")
    text = text.replace("aa = Mul (a, a)", "aa = Mul (d, d)").replace("kept = {0.9}", RANDOM)
    graph = lower_randomness(graph_from_proto(onnx.parser.parse_model(text), state_pairs=STATES))
    rewritten = recomputed(graph, Activations(graph).closed({"d"}))
    assert len(rewritten.ops) > len(graph.ops) + 10
    values = values_of(graph) | {STEP: np.array(3, np.uint32)}
    assert outputs(rewritten, values) == outputs(graph, values)
