"""What memory is taken for, by tensor."""

from __future__ import annotations

import onnx

from planner.features.zoo.models import mlp
from planner.graph.reading.from_onnx import graph_from_proto
from planner.graph.rewriting.recomputation import recomputable, recomputed
from planner.graph.step.deliveries import SharedDelivery, with_deliveries
from planner.graph.step.purposes import Purpose, purposes

STEP = """<ir_version: 10, opset_import: ["" : 21]>
g (float[4, 4] x, float[4, 4] w, float[4, 4] m, float[4, 4] cache)
    => (float[4, 4] y, float[4, 4] w2, float[4, 4] m2, float[4, 4] cache2) <float rate = {0.1}> {
    cache2 = Add (cache, x)
    h = MatMul (cache2, w)
    y = Relu (h)
    t = Transpose <perm = [1, 0]> (x)
    grad = MatMul (t, y)
    m2 = Add (m, grad)
    change = Mul (m2, rate)
    w2 = Sub (w, change)
}"""
PAIRS = (("w", "w2"), ("m", "m2"), ("cache", "cache2"))


def test_purposes_of_a_step() -> None:
    graph = graph_from_proto(onnx.parser.parse_model(STEP), state_pairs=PAIRS)
    graph = with_deliveries(graph, [SharedDelivery("w.delivered", "w", ("MatMul.h", "Sub.w2"))])
    assert purposes(graph) == {
        "x": Purpose.DATA,
        "w": Purpose.PARAMETERS,
        "m": Purpose.OPTIMIZER_STATE,
        "cache": Purpose.CARRIED_STATE,
        "rate": Purpose.CONSTANTS,
        "cache2": Purpose.NEXT_STATE,
        "h": Purpose.ACTIVATIONS,
        "y": Purpose.RESULTS,
        "t": Purpose.GRADIENTS,
        "grad": Purpose.GRADIENTS,
        "m2": Purpose.NEXT_STATE,
        "change": Purpose.GRADIENTS,
        "w2": Purpose.NEXT_STATE,
        "w.delivered": Purpose.FETCHED,
    }


def test_without_results_all_that_is_made_is_activations() -> None:
    text = STEP.replace("float[4, 4] y, ", "")
    found = purposes(graph_from_proto(onnx.parser.parse_model(text), state_pairs=PAIRS))
    assert {found[name] for name in ("h", "y", "grad", "change")} == {Purpose.ACTIVATIONS}
    assert {found[name] for name in ("w", "m", "cache")} == {Purpose.PARAMETERS}


def test_what_is_computed_again_and_what_the_forward_pass_makes_for_the_backward_pass() -> None:
    graph = mlp(2, 8, 4)
    (held, *_) = recomputable(graph)
    found = purposes(recomputed(graph, [held]))
    assert [name for name, purpose in found.items() if purpose is Purpose.AGAIN] == [f"{held}.again"]
    assert found[held] is Purpose.ACTIVATIONS
    assert {name: purpose for name, purpose in found.items() if name != f"{held}.again"} == purposes(graph)
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[4, 4] x, float[4] scale, float[4, 4] w) => (float[4, 4] y, float[4, 4] w2) {
        n, mean = LayerNormalization (x, scale)
        y = MatMul (n, w)
        less = Sub (y, mean)
        t = Transpose <perm = [1, 0]> (n)
        grad = MatMul (t, less)
        w2 = Sub (w, grad)
    }"""
    found = purposes(graph_from_proto(onnx.parser.parse_model(text), state_pairs=(("w", "w2"),)))
    assert found["mean"] is Purpose.ACTIVATIONS
    assert found["less"] is Purpose.GRADIENTS
