"""Training steps of every door planned, run and verified on 2 and 4 workers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from fast_suite import spread
from planner import api

MODELS = Path(__file__).parents[2] / "models"
ARTIFACTS = MODELS / "ort_training_mlp"
FORWARD = ARTIFACTS / "forward.onnx"
LOSS = {"loss": "softmax_cross_entropy", "lr": 0.05}
STEPS = {
    "adamw": (FORWARD, {**LOSS, "optimizer": "adamw", "weight_decay": 0.1, "group": ["w?:lr=0.1x"]}),
    "nesterov clipped": (FORWARD, {**LOSS, "optimizer": "nesterov", "clip_norm": 0.5}),
    "adagrad accumulated": (FORWARD, {**LOSS, "optimizer": "adagrad", "accumulate": 2}),
    "weights of classes": (FORWARD, {**LOSS, "optimizer": "sgd", "class_weights": [1.0] * 5 + [0.5] * 5}),
    "gradients": (MODELS / "mlp_grads_core.onnx", {"optimizer": "adam"}),
    "artifacts": (ARTIFACTS, {}),
    "training info": (FORWARD, {**LOSS, "optimizer": "adam", "form": "training-info"}),
}


def check(model: Path, tmp_path: Path, workers: int) -> None:
    folder = tmp_path / f"plan{workers}"
    api.plan(model, gpus=workers, out=folder)
    outcome = api.run(folder, steps=2, verify=True)
    assert outcome.verified
    assert outcome.moved_bytes == outcome.predicted_bytes


@pytest.mark.parametrize(("name", "workers"), spread(STEPS, [2, 4], one_of=4))
def test_a_step_of_every_door(name, workers, tmp_path):
    model, options = STEPS[name]
    step = tmp_path / "train.onnx"
    api.grad(model, output=step, **options)
    check(step, tmp_path, workers)


@pytest.mark.slow
def test_an_unrolled_lstm(tmp_path):
    rng = np.random.default_rng(0)
    weights = {"w": (1, 32, 6), "r": (1, 32, 8), "b": (1, 64), "v": (8, 4)}
    graph = helper.make_graph(
        [
            helper.make_node("LSTM", ["x", "w", "r", "b"], ["", "h"], hidden_size=8, name="cell"),
            helper.make_node("Squeeze", ["h", "axis"], ["last"]),
            helper.make_node("MatMul", ["last", "v"], ["y"]),
        ],
        "lstm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 8, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 4])],
        [
            *(
                numpy_helper.from_array((0.3 * rng.standard_normal(shape)).astype(np.float32), name)
                for name, shape in weights.items()
            ),
            numpy_helper.from_array(np.array([0]), "axis"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    file, step = tmp_path / "lstm.onnx", tmp_path / "train.onnx"
    file.write_bytes(model.SerializeToString())
    api.grad(file, output=step, loss="softmax_cross_entropy", optimizer="adam")
    check(step, tmp_path, 2)


def language_model(folder: Path) -> Path:
    """Tokens looked up, a layer, and a head whose logits a scalar parameter scales."""
    rng = np.random.default_rng(0)
    weights = {"embed.weight": (16, 8), "fc.weight": (8, 8), "fc.bias": (8,), "head.weight": (8, 16), "logit_scale": ()}
    nodes = [
        helper.make_node("Gather", ["embed.weight", "ids"], ["e"]),
        helper.make_node("MatMul", ["e", "fc.weight"], ["m"]),
        helper.make_node("Add", ["m", "fc.bias"], ["a"]),
        helper.make_node("Tanh", ["a"], ["t"]),
        helper.make_node("MatMul", ["t", "head.weight"], ["h"]),
        helper.make_node("Mul", ["h", "logit_scale"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes, "lm", [helper.make_tensor_value_info("ids", TensorProto.INT64, [4, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [4, 8, 16])],
        [numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) if shape else np.float32(1.3), name)
         for name, shape in weights.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (folder / "lm.onnx").write_bytes(model.SerializeToString())
    return folder / "lm.onnx"


@pytest.mark.slow
@pytest.mark.parametrize(("options", "workers"), [({}, 4), ({"ignore_index": 3, "accumulate": 2}, 2)])
def test_the_next_token(options, workers, tmp_path):
    """The scalar's gradient is summed over the workers, and so are the weights of the labels."""
    step = tmp_path / "train.onnx"
    result = api.grad(
        language_model(tmp_path), output=step, loss="softmax_cross_entropy", optimizer="adam", shift=True, **options
    )
    assert [row.name for row in result.parameters if row.verdict == "trained" and not row.shape] == ["logit_scale"]
    check(step, tmp_path, workers)
