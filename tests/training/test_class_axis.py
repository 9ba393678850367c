"""Which dim of logits holds the classes: read off the ops that make them, stated, or refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import helper

from command_line import ROOT
from drawn import random
from planner import opdefs
from planner.errors import UsageError
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import read_model
from planner.options.training import LabelOptions
from planner.training.build import INPUTS, build_training_graph
from planner.training.update.class_axis import class_axis

node = helper.make_node
SEQUENCE = {"x": random((2, 4, 5))}
IMAGE = {"x": random((2, 3, 4, 4))}
HEAD = node("MatMul", ["x", "w"], ["h"])
CONV = node("Conv", ["x", "k"], ["h"])
WEIGHTS = {"w": random((5, 4)), "k": random((6, 3, 1, 1)), "b": random((4,)),
           "per_channel": random((6, 1, 1, 1))}  # fmt: skip
INTEGERS = {
    "to": np.array([2, 4, 4]), "flat": np.array([8, 5]), "torn": np.array([2, 2, 3, 4, 4]), "first": np.array(0),
    "heads": np.array([2, 2, 2, 2]), "sizes": np.array([2, 6, 8, 8]), "merged": np.array([2, 16]), "one": np.array([3]),
    "twice": np.array([1, 2, 1]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "data", "axis"),
    [
        pytest.param([node("MatMul", ["x", "w"], ["y"])], SEQUENCE, 2, id="product"),
        pytest.param([HEAD, node("Add", ["b", "h"], ["y"])], SEQUENCE, 2, id="bias"),
        pytest.param([HEAD, node("Add", ["h", "b"], ["a"]), node("Cast", ["a"], ["y"], to=1)], SEQUENCE, 2, id="cast"),
        pytest.param([HEAD, node("Tanh", ["h"], ["t"]), node("Mul", ["t", "s"], ["y"])], SEQUENCE, 2, id="softcap"),
        pytest.param([HEAD, node("Transpose", ["h"], ["y"], perm=[0, 2, 1])], SEQUENCE, 1, id="transposed"),
        pytest.param([node("Transpose", ["w"], ["wt"]), node("Transpose", ["x"], ["xt"], perm=[0, 2, 1]),
                      node("MatMul", ["wt", "xt"], ["y"])], SEQUENCE, 1, id="weight-on-the-left"),
        pytest.param([node("Reshape", ["x", "flat"], ["f"]), node("Gemm", ["f", "w"], ["g"]),
                      node("Reshape", ["g", "to"], ["y"])], SEQUENCE, 2, id="gemm"),
        pytest.param([node("Einsum", ["x", "w"], ["y"], equation="btd,dv->bvt")], SEQUENCE, 1, id="einsum"),
        pytest.param([HEAD, node("LogSoftmax", ["h"], ["y"], axis=1)], SEQUENCE, 1, id="softmax"),
        pytest.param([HEAD, node("Slice", ["h", "first1", "one"], ["y"])], SEQUENCE, 2, id="slice"),
        pytest.param([node("Unsqueeze", ["x", "first1"], ["u"]), node("MatMul", ["u", "w"], ["h"]),
                      node("Gather", ["h", "first"], ["y"], axis=0)], SEQUENCE, 2, id="gather"),
        pytest.param([node("Conv", ["x", "k"], ["y"])], IMAGE, 1, id="convolution"),
        pytest.param([CONV, node("Resize", ["h", "", "", "sizes"], ["y"])], IMAGE, 1, id="upsampled"),
        pytest.param([CONV, node("Transpose", ["h"], ["y"], perm=[0, 2, 3, 1])], IMAGE, 3, id="channels-last"),
        pytest.param([HEAD, node("LayerNormalization", ["h", "b"], ["y"])], SEQUENCE, 2, id="normalised"),
        pytest.param([HEAD, node("Tile", ["h", "twice"], ["y"])], SEQUENCE, 2, id="described-and-listed-nowhere"),
        pytest.param([node("Conv", ["x", "per_channel"], ["y"], group=3)], IMAGE, 1, id="grouped-convolution"),
        pytest.param([CONV, node("Conv", ["x", "k"], ["i"]), node("Add", ["h", "i"], ["a"]),
                      node("GlobalAveragePool", ["a"], ["y"])], IMAGE, 1, id="two-convolutions"),
    ],
)  # fmt: skip
def test_read_off_the_ops(nodes, data, axis, forward_model):
    constants = {**INTEGERS, "s": np.array(30.0), "first1": np.array([0])}
    graph = forward_model(nodes, WEIGHTS, data, constants).graph()
    assert class_axis(graph, "y") == axis


@pytest.mark.parametrize(
    ("nodes", "data", "why"),
    [
        pytest.param([node("MatMul", ["x", "xt"], ["y"])], {**SEQUENCE, "xt": random((2, 5, 3))}, "MatMul", id="data"),
        pytest.param([node("Tanh", ["x"], ["y"])], SEQUENCE, "'x' is an input of the model", id="input"),
        pytest.param([CONV, node("Reshape", ["h", "torn"], ["y"])], IMAGE, "merged with others, or torn", id="anchors"),
        pytest.param([HEAD, node("Transpose", ["h"], ["t"], perm=[0, 2, 1]), node("Add", ["h", "t"], ["y"])], SEQUENCE,
                     "has them in dim 1 and in dim 2", id="both"),
    ],
)  # fmt: skip
def test_refused_with_both_commands(nodes, data, why, forward_model):
    graph = forward_model(nodes, WEIGHTS, data, INTEGERS).graph()
    with pytest.raises(UsageError) as error:
        build_training_graph(graph, loss="nll", optimizer="sgd", learning_rate=1.0)
    assert why in error.value.what
    shape = graph.tensors["y"].shape
    assert error.value.facts == tuple(
        f"tofu grad MODEL --loss nll --class-axis {axis}: {shape[axis]} classes, "
        f"labels {[size for dim, size in enumerate(shape) if dim != axis]}"
        for axis in (len(shape) - 1, 1)
    )


def test_a_composite_of_onnx_runtime():
    graph = read_model(ROOT / "tests" / "models" / "optimized" / "bert.onnx", operators=opdefs.standard())
    (attention, *_) = (op for op in graph.ops if op.op_type == "MultiHeadAttention")
    assert class_axis(graph, attention.outputs[0]) == 2


def test_stated(forward_model):
    graph = forward_model([HEAD, node("Tanh", ["h"], ["y"])], WEIGHTS, SEQUENCE).graph()
    assert [class_axis(graph, "y", stated=axis) for axis in (0, 1, -1)] == [0, 1, 2]
    with pytest.raises(UsageError, match=r"--class-axis 3: output 'y' is \[2, 4, 4\]") as raised:
        class_axis(graph, "y", stated=3)
    assert raised.value.hint == "its dims are 0 to 2, or -3 to -1 from the end"


def test_time_of_as_many_steps_as_there_are_words_is_no_word(forward_model, reference):
    """Where both dims are of one size, nothing else tells that the loss is another one."""
    forward = forward_model([node("MatMul", ["x", "w"], ["y"])], {"w": random((5, 4))}, SEQUENCE)
    step = build_training_graph(forward.graph(), loss="softmax_cross_entropy", optimizer="sgd", learning_rate=1.0)
    labels = np.random.default_rng(0).integers(0, 4, (2, 4))
    logits = SEQUENCE["x"] @ forward.parameters["w"]
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    wanted = -np.take_along_axis(log_p, labels[..., None], -1).mean()
    assert reference(to_model(step), {**SEQUENCE, "labels": labels})["loss"] == pytest.approx(wanted, rel=1e-12)


def next_token_loss(logits, tokens, weights=None, ignore=None):
    """By hand: every position but the last of each sample is judged by the token that follows it."""
    rows, labels = logits[:, :-1].reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1)
    log_p = rows - np.log(np.exp(rows).sum(1, keepdims=True))
    w = np.ones(len(labels)) if weights is None else np.array(weights)[labels]
    w = np.where(labels == ignore, 0.0, w)
    return -(w * log_p[np.arange(len(labels)), labels]).sum() / w.sum()


@pytest.mark.parametrize("weights", [None, (0.5, 2.0, 1.0, 0.25)])
@pytest.mark.parametrize("ignore", [None, 2])
def test_shift(weights, ignore, forward_model, reference, directions):
    tokens = np.random.default_rng(3).integers(0, 4, (2, 5))
    nodes = [node("Gather", ["table", "tokens"], ["e"]), node("Tanh", ["e"], ["t"]), node("MatMul", ["t", "w"], ["y"])]
    data = {"tokens": tokens, "mask": np.ones((2, 5), np.int64)}
    nodes += [node("Cast", ["mask"], ["m"], to=11), node("ReduceSum", ["m"], ["used"], keepdims=0)]
    forward = forward_model(
        nodes, {"table": random((4, 3)), "w": random((3, 4))}, data, outputs=["y", "used"]
    )  # fmt: skip
    step = build_training_graph(
        forward.graph(), loss="softmax_cross_entropy", optimizer="sgd", learning_rate=1.0, output="y",
        labels=LabelOptions(class_weights=weights, ignore_index=ignore, shift=True),
    )  # fmt: skip
    assert step.inputs[:3] == ("tokens", "mask", "learning_rate"), "no labels"
    found = reference(to_model(step), data)

    def of(parameters):
        return next_token_loss(np.tanh(parameters["table"][tokens]) @ parameters["w"], tokens, weights, ignore)

    assert found["loss"] == pytest.approx(of(forward.parameters), rel=1e-9)
    taken = {name: value - found[f"{name}.next"] for name, value in forward.parameters.items()}
    directions(of, forward.parameters, taken)


def test_shift_refused(forward_model):
    nodes = [node("Gather", ["table", "tokens"], ["e"]), node("Gather", ["table", "others"], ["f"]),
             node("Add", ["e", "f"], ["a"]), node("MatMul", ["a", "w"], ["y"])]  # fmt: skip
    ids = np.zeros((2, 5), np.int64)
    graph = forward_model(nodes, {"table": random((4, 3)), "w": random((3, 4))}, {"tokens": ids, "others": ids}).graph()
    settings = {"loss": "nll", "optimizer": "sgd", "learning_rate": 1.0}
    with pytest.raises(UsageError, match="several inputs may be the tokens") as error:
        build_training_graph(graph, labels=LabelOptions(shift=True), **settings)
    assert error.value.hint == "say which one is: --tokens NAME"
    assert build_training_graph(graph, labels=LabelOptions(tokens="others"), **settings).inputs[:2] == graph.inputs
    with pytest.raises(UsageError, match="--tokens token: is no integer input"):
        build_training_graph(graph, labels=LabelOptions(tokens="token"), **settings)
    flat = forward_model([node("MatMul", ["z", "w"], ["y"])], {"w": random((3, 4))}, {"z": random((5, 3))}).graph()
    with pytest.raises(UsageError, match="takes logits of batch, time and words"):
        build_training_graph(flat, labels=LabelOptions(shift=True), **settings)
    with pytest.raises(UsageError, match="'mse' has no labels"):
        build_training_graph(graph, labels=LabelOptions(shift=True), **settings | {"loss": "mse"})


def test_what_tokens_are_looked_up_in_bounds_them(forward_model):
    """Through a Reshape, and beside a comparison with padding, which tells of no bound."""
    nodes = [node("Reshape", ["tokens", "flat"], ["f"]), node("Gather", ["table", "f"], ["e"]),
             node("Equal", ["tokens", "padding"], ["is_padding"]), node("MatMul", ["e", "w"], ["y"])]  # fmt: skip
    constants = {"flat": np.array([-1]), "padding": np.array(0)}
    forward = forward_model(nodes, {"table": random((7, 3)), "w": random((3, 4))},
                            {"tokens": np.zeros((2, 5), np.int64)}, constants, ["y", "is_padding"])  # fmt: skip
    step = build_training_graph(forward.graph(), loss="nll", optimizer="sgd", learning_rate=1.0, output="y")
    assert json.loads(step.notes[INPUTS])["tokens"] == {"integers_below": 7}
