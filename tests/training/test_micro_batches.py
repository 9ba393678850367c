"""A step of several micro-batches: the mean of what each makes from the same weights, in one graph."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from drawn import random
from planner.errors import UnsupportedError
from planner.graph.core.model import StatePair
from planner.graph.core.notes import without_micro_batch
from planner.graph.reading.from_onnx import graph_from_proto
from planner.training.build import build_training_graph
from planner.training.doors.gradients import with_optimizer
from planner.training.update.updates import Schedule
from stock_runtime import run

node = helper.make_node
F = np.float32
BATCHES, RATE = 3, 0.5


def drawn(**shapes):
    return {name: random(shape, number, F) for number, (name, shape) in enumerate(shapes.items())}


NORM = {"scale": random((4,), 1, F), "bias": random((4,), 2, F), "mean": random((4,), 3, F),
        "variance": np.abs(random((4,), 4, F)) + 1}  # fmt: skip
MODELS = {
    "samples first": ([node("MatMul", ["x", "w"], ["y"])], drawn(w=(3, 5)), {"x": (4, 3)}, "mse",
                      {"x": 0, "target": 0}),
    "labels of positions": ([node("MatMul", ["x", "w"], ["y"])], drawn(w=(3, 5)), {"x": (2, 4, 3)},
                            "softmax_cross_entropy", {"x": 0, "labels": 0}),
    "samples after time": (
        [node("LSTM", ["x", "w", "r"], ["h"], hidden_size=2), node("Squeeze", ["h", "one"], ["s"]),
         node("MatMul", ["s", "v"], ["y"])],
        {**drawn(w=(1, 8, 3), r=(1, 8, 2), v=(2, 5)), "one": np.array([1])}, {"x": (6, 4, 3)}, "mse",
        {"x": 1, "target": 1},
    ),
    "samples merged": (
        [node("Reshape", ["x", "shape"], ["m"]), node("MatMul", ["m", "w"], ["y"])],
        {**drawn(w=(3, 5)), "shape": np.array([8, 3])}, {"x": (2, 4, 3)}, "mse", {"x": 0, "target": 0},
    ),
    "an input of all": (
        [node("MatMul", ["x", "w"], ["h"]), node("Mul", ["h", "mask"], ["y"])], drawn(w=(3, 5)),
        {"x": (4, 3), "mask": (5,)}, "l1", {"x": 0, "target": 0},
    ),
    "own loss": (
        [node("MatMul", ["x", "w"], ["h"]), node("ReduceSumSquare", ["h"], ["loss"], keepdims=0)], drawn(w=(3, 5)),
        {"x": (4, 3)}, "output:loss", {"x": 0},
    ),
    "no data in a gradient": (
        [node("MatMul", ["x", "w"], ["h"]), node("ReduceSumSquare", ["h"], ["a"], keepdims=0),
         node("ReduceSumSquare", ["u"], ["b"], keepdims=0), node("Add", ["a", "b"], ["cost"])],
        drawn(w=(3, 5), u=(2, 2)), {"x": (4, 3)}, "output:cost", {"x": 0},
    ),
    "statistics": ([node("BatchNormalization", ["x", *NORM], ["y"])], NORM, {"x": (4, 4, 2)}, "mse",
                   {"x": 0, "target": 0}),
}  # fmt: skip


def fed(graph, shapes):
    """Data for a graph's inputs, of such shapes."""
    found = {}
    for number, (name, shape) in enumerate(shapes.items()):
        is_float = graph.tensors[name].dtype.is_float
        found[name] = random(shape, 20 + number, F) if is_float else np.arange(np.prod(shape)).reshape(shape) % 5
    return found


def parts(data, dims):
    for batch in range(BATCHES):
        yield {name: np.split(array, BATCHES, dims[name])[batch] if name in dims else array
               for name, array in data.items()}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_step_is_the_mean_of_the_micro_batches(name, forward_model):
    """Statistics go from one to the next."""
    nodes, constants, shapes, loss, dims = MODELS[name]
    output = loss.partition(":")[2] or "y"
    data = {one: random(shape, 9, F) for one, shape in shapes.items()}
    forward = forward_model(nodes, constants, data, outputs=(output,))
    made = [build_training_graph(forward.graph(), loss=loss, optimizer="sgd", learning_rate=RATE,
                                 schedule=Schedule(accumulate=batches)) for batches in (1, BATCHES)]  # fmt: skip
    single, step = made
    states = {pair.current for pair in step.state}
    assert states == {pair.current for pair in single.state}
    assert set(step.outputs) == set(single.outputs) - {"y"}
    data = fed(step, {name: step.tensors[name].shape for name in step.inputs if name not in (*states, "learning_rate")})
    found = run(step, {**step.initial, **data})
    each, state = [], dict(single.initial)
    for part in parts(data, dims):
        each.append(run(single, {**state, **part}))
        state |= {name: each[-1][f"{name}.next"] for name in states & {"mean", "variance"}}
    for name in states:
        wanted = [one[f"{name}.next"] for one in each]
        wanted = wanted[-1] if name in ("mean", "variance") else np.mean(wanted, 0)
        np.testing.assert_allclose(found[f"{name}.next"], wanted, rtol=2e-5, atol=2e-6, err_msg=name)
    for name in set(step.outputs) & {"loss", "cost"}:
        np.testing.assert_allclose(found[name], np.mean([one[name] for one in each]), rtol=1e-5)


def test_a_micro_batch_begins_where_the_one_before_is_done(forward_model):
    """Its activations are gone by then, and its gradients are in the sums."""
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Relu", ["h"], ["r"]), node("MatMul", ["r", "v"], ["y"])]
    forward = forward_model(nodes, drawn(w=(3, 5), v=(5, 2)), {"x": random((4, 3), 9, F)})
    step = build_training_graph(forward.graph(), loss="mse", optimizer="adam", learning_rate=RATE,
                                schedule=Schedule(accumulate=BATCHES, clip_norm=1.0))  # fmt: skip
    own = [op.name != without_micro_batch(op.name) for op in step.ops]
    numbers = [op.name.split(".micro")[1][0] for op, is_own in zip(step.ops, own, strict=True) if is_own]
    assert numbers == sorted(numbers)
    assert set(numbers) == set("123")
    last = max(number for number, is_own in enumerate(own) if is_own)
    assert any("update" in op.outputs[0] for op in step.ops[last:])
    assert not any("update" in op.outputs[0] for op in step.ops[:last])


def test_each_has_masks_of_its_own(forward_model):
    forward = forward_model(
        [node("MatMul", ["x", "w"], ["h"]), node("Dropout", ["h"], ["y"])], drawn(w=(3, 5)), {"x": random((4, 3), 9, F)}
    )
    step = build_training_graph(forward.graph(), loss="mse", optimizer="sgd", learning_rate=RATE, dropout="train",
                                schedule=Schedule(accumulate=BATCHES))  # fmt: skip
    assert len({op.name for op in step.ops if op.op_type == "Dropout"}) == BATCHES


def test_one_overflow_leaves_the_whole_update_out(forward_model):
    forward = forward_model([node("MatMul", ["x", "w"], ["y"])], drawn(w=(3, 5)), {"x": random((4, 3), 9, F)})
    step = build_training_graph(forward.graph(), loss="mse", optimizer="momentum", learning_rate=RATE,
                                schedule=Schedule(accumulate=BATCHES, dynamic_scale=True))  # fmt: skip
    data = fed(step, {"x": (12, 3), "target": (12, 5)})
    kept = run(step, {**step.initial, **data})
    assert (kept["loss_scale.next"], kept["loss_scale.good_steps.next"]) == (65536, 1)
    data["x"][5] = np.inf
    found = run(step, {**step.initial, **data})
    assert (found["loss_scale.next"], found["loss_scale.good_steps.next"]) == (32768, 0)
    np.testing.assert_array_equal(found["w.next"], step.initial["w"])
    assert (kept["w.next"] != step.initial["w"]).any()


def test_a_graph_of_gradients():
    """Inputs that are parameters or statistics are no data, whatever their size is."""
    nodes = [
        node("MatMul", ["x", "w"], ["h"]), node("ReduceSumSquare", ["h"], ["loss"], keepdims=0),
        node("Add", ["h", "h"], ["dh"]), node("Transpose", ["x"], ["xt"]), node("MatMul", ["xt", "dh"], ["w_grad"]),
        node("Mul", ["kept", "half"], ["less"]), node("ReduceSum", ["x", "first"], ["sum"], keepdims=0),
        node("Add", ["less", "sum"], ["kept_out"]),
    ]  # fmt: skip

    def value(name, shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    constants = [numpy_helper.from_array(np.array(0.5, F), "half"), numpy_helper.from_array(np.array([0]), "first")]
    inputs = [value("w", (4, 2)), value("kept", (4,)), value("x", (4, 4))]
    outputs = [value("loss", ()), value("h", (4, 2)), value("w_grad", (4, 2)), value("kept_out", (4,))]
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, constants),
                              opset_imports=[helper.make_opsetid("", 21)])  # fmt: skip
    graph = graph_from_proto(model, state_pairs=[])
    step = with_optimizer(graph, [("w", "w_grad")], optimizer="sgd", learning_rate=RATE,
                          schedule=Schedule(accumulate=2), running=[StatePair("kept", "kept_out")])  # fmt: skip
    assert step.tensors["x"].shape == (8, 4)
    assert step.outputs == ("loss", "w.next", "kept_out")
    w, kept, x = drawn(w=(4, 2), kept=(4,), x=(8, 4)).values()
    found = run(step, {"w": w, "kept": kept, "x": x, "learning_rate": np.array(RATE, F)})
    np.testing.assert_allclose(found["w.next"], w - RATE * x.T @ (x @ w), rtol=1e-5)  # the mean of two sums 2 x'xw
    np.testing.assert_allclose(found["loss"], ((x @ w) ** 2).sum() / 2, rtol=1e-5)
    np.testing.assert_allclose(found["kept_out"], (kept / 2 + x[:4].sum(0)) / 2 + x[4:].sum(0), rtol=1e-5)


def test_data_without_dims_are_no_batch(forward_model):
    forward = forward_model([node("Mul", ["w", "x"], ["p"]), node("ReduceSum", ["p"], ["loss"], keepdims=0)],
                            drawn(w=(3,)), {"x": np.array(2, F)}, outputs=("loss",))  # fmt: skip
    with pytest.raises(UnsupportedError, match="no micro-batches"):
        build_training_graph(forward.graph(), loss="output:loss", optimizer="sgd", learning_rate=RATE,
                             schedule=Schedule(accumulate=2))  # fmt: skip
