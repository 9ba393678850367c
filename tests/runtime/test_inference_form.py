"""The loss on held-out data is that of the model in inference form, as ONNX Runtime executes the forward model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, save_model

import stock_runtime
from planner import api
from planner.graph.core.notes import TRAINING
from planner.graph.decompositions.randomness import lower_randomness
from planner.graph.reading.from_onnx import graph_from_proto
from planner.options.running import RunOptions
from planner.runtime.plan_files import load_plan
from planner.runtime.run import run_with

node = helper.make_node
F = np.float32
RNG = np.random.default_rng(3)
X, Y = RNG.standard_normal((16, 3, 4)).astype(F), RNG.integers(0, 5, 16)
HELD = {"x": 2 * RNG.standard_normal((8, 3, 4)).astype(F) + 1, "labels": RNG.integers(0, 5, 8)}
NORM = ["s", "b", "m", "v"]
WEIGHTS = {
    "w": RNG.standard_normal((3, 3)).astype(F), "u": RNG.standard_normal((12, 5)).astype(F),
    "s": RNG.standard_normal(3).astype(F) + 1, "b": RNG.standard_normal(3).astype(F),
    "m": RNG.standard_normal(3).astype(F), "v": RNG.random(3).astype(F) + 0.5,
    "ratio": np.array(0.3, F), "yes": np.array(True),
}  # fmt: skip
HEAD = [node("Flatten", ["h"], ["f"]), node("MatMul", ["f", "u"], ["y"])]
LAYER = [node("Einsum", ["x", "w"], ["e"], equation="nct,cd->ndt")]
MODELS = {
    "statistics": [*LAYER, node("BatchNormalization", ["e", *NORM], ["h"], momentum=0.6), *HEAD],
    "statistics used twice": [
        *LAYER, node("BatchNormalization", ["e", *NORM], ["n"]), node("Tanh", ["n"], ["t"]),
        node("BatchNormalization", ["t", *NORM], ["h"]), *HEAD,
    ],
    "dropout": [*LAYER, node("Dropout", ["e", "ratio"], ["h"]), *HEAD],
    "dropout of one half": [*LAYER, node("Dropout", ["e", "", "yes"], ["h"]), *HEAD],
    "both": [*LAYER, node("BatchNormalization", ["e", *NORM], ["n"]), node("Dropout", ["n", "ratio"], ["h"]), *HEAD],
}  # fmt: skip


def forward(nodes, state) -> ModelProto:
    read = {name for one in nodes for name in one.input}
    values = [numpy_helper.from_array(state.get(f"{name}.next", value), name)
              for name, value in WEIGHTS.items() if name in read]  # fmt: skip
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3, 4])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 5])]
    graph = helper.make_graph(nodes, "net", inputs, outputs, values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def inferred(nodes, state):
    """Mean loss and accuracy of the model with these weights, without its Dropouts."""
    plain = [node("Identity", one.input[:1], one.output) if one.op_type == "Dropout" else one for one in nodes]
    model, losses, right = forward(plain, state), [], 0
    for first in (0, 4):
        rows = slice(first, first + 4)
        y, labels = stock_runtime.run(model, {"x": HELD["x"][rows]})["y"].astype(np.float64), HELD["labels"][rows]
        losses.append(np.mean(np.log(np.exp(y).sum(1)) - y[np.arange(4), labels]))
        right += (y.argmax(1) == labels).sum()
    return np.mean(losses), right / 8


def ran(nodes, workers: int, folder: Path, said: list[str], **grad):
    save_model(forward(nodes, {}), folder / "m.onnx")
    dropout = "train" if any(one.op_type == "Dropout" for one in nodes) else None
    loss = {"loss": "softmax_cross_entropy", "optimizer": "momentum", "lr": 0.1, "dropout": dropout}
    api.grad(folder / "m.onnx", output=folder / "t.onnx", **loss | grad)
    api.plan(folder / "t.onnx", gpus=workers, out=folder / "plan", effort="quick")
    np.savez(folder / "held.npz", **HELD)
    plan = replace(load_plan(folder / "plan"), paths=())  # its workers are threads of this process
    metric = None if "accumulate" in grad else "accuracy"
    return run_with(
        plan,
        RunOptions(
            inputs={"x": X, "labels": Y}, epochs=2, eval_inputs=folder / "held.npz", metric=metric, notice=said.append
        ),
    )


@pytest.mark.parametrize(
    ("name", "workers", "grad"),
    [
        ("both", 2, {}),
        *(
            pytest.param(name, workers, grad, marks=pytest.mark.slow)
            for name, workers, grad in [
                *((name, 2, {}) for name in MODELS if name != "both"), ("both", 4, {}), ("both", 1, {}),
                ("both", 2, {"accumulate": 2}), ("statistics used twice", 2, {"accumulate": 2}),
            ]
        ),
    ],
)  # fmt: skip
def test_held_out_data_meet_the_model_as_it_infers(name, workers, grad, tmp_path):
    said: list[str] = []
    found = ran(MODELS[name], workers, tmp_path, said, **grad)
    loss, accuracy = inferred(MODELS[name], found.results)
    np.testing.assert_allclose(found.evaluations[-1].loss, loss, rtol=2e-5)
    assert found.evaluations[-1].accuracy == (None if grad else accuracy)
    assert any("no Dropout drops, and batch normalization takes its running statistics" in line for line in said)


@pytest.mark.slow
def test_training_is_as_without_the_switch(tmp_path):
    """It goes on as it was once held-out data are done; a step that trains in one form alone has no switch."""
    nodes = MODELS["both"]
    said: list[str] = []
    found = ran(nodes, 1, tmp_path, said)
    plan = replace(load_plan(tmp_path / "plan"), paths=())
    plain = run_with(plan, RunOptions(inputs={"x": X, "labels": Y}, epochs=2))
    assert found.losses == plain.losses
    assert {name: value.tobytes() for name, value in found.results.items()} == {
        name: value.tobytes() for name, value in plain.results.items()
    }
    result = api.grad(tmp_path / "m.onnx", output=tmp_path / "f.onnx", loss="mse", optimizer="sgd", batchnorm="frozen")
    assert TRAINING not in {row.name for row in result.data}


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.3, 0.5, 0.99, 1.0])
def test_a_computed_ratio_drops_what_a_known_one_drops(ratio):
    masks = []
    for is_known in (True, False):
        value = numpy_helper.from_array(np.array(ratio, F), "ratio")
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [40, 50])]
        inputs += [] if is_known else [helper.make_tensor_value_info("ratio", TensorProto.FLOAT, [])]
        outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [40, 50])]
        yes = numpy_helper.from_array(np.array(True), "yes")
        graph = helper.make_graph([node("Dropout", ["x", "ratio", "yes"], ["y"], name="d")], "g", inputs, outputs,
                                  [value, yes] if is_known else [yes])  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        written = lower_randomness(graph_from_proto(model))
        feeds = {**written.initial, "x": np.ones((40, 50), F)} | ({} if is_known else {"ratio": np.array(ratio, F)})
        masks.append(stock_runtime.run(written, feeds)["y"])
    np.testing.assert_array_equal(masks[0], masks[1])
    assert masks[0].any() == (ratio < 1)
