"""Another batch of a recurrent network: each sample gives what it gives alone, or the change is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from drawn import random32
from planner.errors import UnsupportedError
from planner.graph.core.model import Graph
from planner.graph.reading.from_onnx import graph_from_proto
from planner.training.batch.change import samples_of_inputs, with_batch
from planner.training.build import build_training_graph
from stock_runtime import run

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
TIME, OLD, SIZE, HIDDEN = 5, 2, 3, 4


def network(
    op_type: str, *, direction: str = "forward", layout: int = 0, states: bool = False, data: str = "x"
) -> Graph:
    """A recurrent op with all its outputs; its lengths and first states are constants that no sample differs in."""
    ways, gates = (2 if direction == "bidirectional" else 1), GATES[op_type]
    constants = {
        "w": random32((ways, gates * HIDDEN, SIZE), 1),
        "r": random32((ways, gates * HIDDEN, HIDDEN), 2),
        "b": random32((ways, 2 * gates * HIDDEN), 3),
    }
    names = ["x", "w", "r", "b"]
    if states:
        constants["lengths"] = np.full(OLD, TIME - 1, np.int32)
        constants["h"] = np.repeat(random32((ways, 1, HIDDEN), 4), OLD, 1)
        names += ["lengths", "h"]
        if op_type == "LSTM":
            constants["c"] = np.repeat(random32((ways, 1, HIDDEN), 5), OLD, 1)
            names.append("c")
    outputs = ["y", "y_h", "y_c"] if op_type == "LSTM" else ["y", "y_h"]
    stated = {"hidden_size": HIDDEN, "direction": direction, **({"layout": 1} if layout else {})}
    nodes = [helper.make_node(op_type, names, outputs, name="cell", **stated)]
    shape = [OLD, TIME, SIZE] if layout else [TIME, OLD, SIZE]
    if data != "x":  # samples first, and turned for the op
        nodes.insert(0, helper.make_node("Transpose", [data], ["x"], perm=[1, 0, 2]))
        shape = [OLD, TIME, SIZE]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info(data, TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return graph_from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


@pytest.mark.parametrize("op_type", GATES)
@pytest.mark.parametrize(
    "options", [{}, {"direction": "bidirectional", "states": True}, {"states": True, "data": "turned"}], ids=str
)
def test_each_sample_gives_what_it_gives_alone(op_type: str, options: dict[str, object]) -> None:
    graph = network(op_type, **options)  # type: ignore[arg-type]
    (name,) = graph.inputs
    dim = 0 if name == "turned" else 1
    alone, many = with_batch(graph, 1), with_batch(graph, 3)
    x = random32(many.tensors[name].shape, 9)
    assert x.shape[dim] == 3
    found = run(many, {name: x})
    for sample in range(3):
        expected = run(alone, {name: np.take(x, [sample], dim)})
        for output, own in expected.items():
            part = np.take(found[output], [sample], 2 if output == "y" else 1)
            np.testing.assert_allclose(part, own, rtol=1e-5, atol=1e-6, err_msg=output)


@pytest.mark.parametrize("op_type", GATES)
def test_a_training_graph_of_another_batch(op_type: str) -> None:
    step = build_training_graph(
        network(op_type), loss="mse", optimizer="sgd", learning_rate=0.1, batch=7, output="y_h"
    )  # fmt: skip
    assert step.tensors["x"].shape == (TIME, 7, SIZE)
    assert step.tensors["target"].shape == (1, 7, HIDDEN)


def test_samples_before_the_sequence() -> None:
    """ONNX Runtime has no kernel for layout 1: only shapes are looked at."""
    changed = with_batch(network("LSTM", layout=1), 3)
    assert {name: changed.tensors[name].shape for name in changed.outputs} == {
        "y": (3, TIME, 1, HIDDEN), "y_h": (3, 1, HIDDEN), "y_c": (3, 1, HIDDEN),
    }  # fmt: skip


def test_inputs_say_by_their_readers_where_the_samples_are() -> None:
    """A sequence of as many steps as a mask has samples: the op that reads it knows which is which."""
    assert samples_of_inputs(network("GRU"))[1]["x"].dim == 1
    assert samples_of_inputs(network("GRU"))[0] == OLD
    assert samples_of_inputs(network("GRU", data="turned"))[1]["turned"].dim == 0


def test_first_states_that_differ_between_samples_are_refused() -> None:
    graph = network("RNN", states=True)
    first = np.array(graph.constants["h"])
    first[0, 1] += 1
    with pytest.raises(UnsupportedError) as raised:
        with_batch(replace(graph, constants={**graph.constants, "h": first}), 3)
    assert "its constant 'h' differs between samples" in raised.value.facts[0]
