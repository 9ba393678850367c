"""LSTMTraining, GRUTraining and their gradients beside those of the standard operators."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from microsoft_models import PREVIEW, model_of, ms, run
from planner.training.doors.rewriting import read_rewritten
from planner.training.doors.training_info import read_training_info

STEPS, BATCH, INPUT, HIDDEN = 3, 2, 4, 4
node = helper.make_node


def lowered(nodes, shapes, constants, outputs, feeds):
    graph = read_rewritten(model_of(nodes, shapes, constants, outputs))
    assert {op.domain for op in graph.ops} == {""}
    return run(graph, feeds)


def differentiated(forward, states, wanted, shapes, constants, feeds):
    """The gradients of Σ state * its gradient, by ONNX's Gradient."""
    products = []
    for name in states:
        products += [node("Mul", [name, f"d{name}"], [f"{name}.p"]), node("ReduceSum", [f"{name}.p"], [f"{name}.s"],
                                                                          keepdims=0)]  # fmt: skip
    total = node("Sum", [f"{name}.s" for name in states], ["total"])
    outputs = [f"d{name}" for name in wanted]
    asked = node("Gradient", wanted, outputs, xs=wanted, y="total", domain=PREVIEW)
    return run(read_training_info(model_of([*forward, *products, total, asked], shapes, constants, outputs)), feeds)


def drawn(shapes):
    generator = np.random.default_rng(3)
    return {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_lstm(direction):
    ways = 2 if direction == "bidirectional" else 1
    state = (ways, BATCH, HIDDEN)
    operands = {"x": (STEPS, BATCH, INPUT), "w": (ways, 4 * HIDDEN, INPUT), "r": (ways, 4 * HIDDEN, HIDDEN),
                "b": (ways, 8 * HIDDEN), "h": state, "c": state, "p": (ways, 3 * HIDDEN)}  # fmt: skip
    shapes = {**operands, "dy": (STEPS, ways, BATCH, HIDDEN), "dyh": state, "dyc": state}
    constants = {"lengths": np.array([3, 2], np.int32)}
    inputs = ["x", "w", "r", "b", "lengths", "h", "c", "p"]
    stated = {"direction": direction, "hidden_size": HIDDEN, "clip": 2.5}
    nodes = [
        ms("LSTMTraining", inputs, ["y", "yh", "yc", "cells", "gates"], **stated),
        ms("LSTMGrad", ["x", "w", "r", "lengths", "h", "c", "y", "cells", "gates", "dy", "dyh", "dyc"],
           ["dx", "dw", "dr", "db", "dh", "dc", "dp"], **stated),
    ]  # fmt: skip
    feeds = drawn(shapes)
    found = lowered(nodes, shapes, constants, [f"d{name}" for name in operands], feeds)
    forward = [node("LSTM", inputs, ["y", "yh", "yc"], **stated)]
    expected = differentiated(forward, ["y", "yh", "yc"], list(operands), shapes, constants, feeds)
    assert len(expected) == len(operands)
    for name, value in expected.items():
        assert np.abs(value).max() > 0
        np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("linear_before_reset", [0, 1])
def test_gru_without_the_gradient_of_its_last_state(linear_before_reset):
    operands = {"x": (STEPS, BATCH, INPUT), "w": (1, 3 * HIDDEN, INPUT), "r": (1, 3 * HIDDEN, HIDDEN),
                "b": (1, 6 * HIDDEN), "h": (1, BATCH, HIDDEN)}  # fmt: skip
    shapes = {**operands, "dy": (STEPS, 1, BATCH, HIDDEN)}
    inputs = ["x", "w", "r", "b", "", "h"]
    stated = {"hidden_size": HIDDEN, "linear_before_reset": linear_before_reset}
    nodes = [
        ms("GRUTraining", inputs, ["y", "yh", "gates"], **stated),
        ms("GRUGrad", [*inputs, "y", "gates", "dy", ""], ["", "dw", "dr", "db", "dh"], **stated),
    ]
    feeds = drawn(shapes)
    wanted = ["w", "r", "b", "h"]
    found = lowered(nodes, shapes, {}, [f"d{name}" for name in wanted], feeds)
    expected = differentiated([node("GRU", inputs, ["y", "yh"], **stated)], ["y"], wanted, shapes, {}, feeds)
    assert len(expected) == len(wanted)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=2e-6, err_msg=name)


def test_two_cells_with_one_weight_and_one_zero_for_both_states():
    """What they share is emitted once, and each op's gradient is its own."""
    operands = {"x": (STEPS, BATCH, INPUT), "w": (1, 4 * HIDDEN, INPUT), "r": (1, 4 * HIDDEN, HIDDEN),
                "z": (1, BATCH, HIDDEN)}  # fmt: skip
    shapes = {**operands, "dv": (STEPS, 1, BATCH, HIDDEN)}
    constants = {"one": np.array([1])}

    def cell(kind, x, outputs):
        make = ms if kind == "LSTMTraining" else node
        return make(kind, [x, "w", "r", "", "", "z", "z"], outputs, hidden_size=HIDDEN)

    def gradient(x, y, cells, gates, dy, last):
        inputs = [x, "w", "r", "", "z", "z", y, cells, gates, dy, "", ""]
        return ms("LSTMGrad", inputs, [f"dx{last}", f"dw{last}", f"dr{last}", "", f"dh{last}", f"dc{last}"],
                  hidden_size=HIDDEN)  # fmt: skip

    between = node("Squeeze", ["y", "one"], ["u"])
    nodes = [
        cell("LSTMTraining", "x", ["y", "", "", "cells1", "gates1"]), between,
        cell("LSTMTraining", "u", ["v", "", "", "cells2", "gates2"]),
        gradient("u", "v", "cells2", "gates2", "dv", "2"),
        node("Unsqueeze", ["dx2", "one"], ["dy"]),
        gradient("x", "y", "cells1", "gates1", "dy", "1"),
        node("Identity", ["dx1"], ["dx"]),
        node("Add", ["dw1", "dw2"], ["dw"]), node("Add", ["dr1", "dr2"], ["dr"]),
        node("Sum", ["dh1", "dc1", "dh2", "dc2"], ["dz"]),
    ]  # fmt: skip
    feeds = drawn(shapes)
    found = lowered(nodes, shapes, constants, [f"d{name}" for name in operands], feeds)
    forward = [cell("LSTM", "x", ["y"]), between, cell("LSTM", "u", ["v"])]
    expected = differentiated(forward, ["v"], list(operands), shapes, constants, feeds)
    assert len(expected) == len(operands)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=2e-6, err_msg=name)
