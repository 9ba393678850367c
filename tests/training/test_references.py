"""Steps of ResNet-50 and BERT beside PyTorch's, each from PyTorch's own state (tests/tools/torch_references.py).

Both are judged by PyTorch's step in float64: the error may be four times PyTorch's own in float32, or 64 ulp.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from planner.graph.from_onnx import read_model
from planner.graph.to_onnx import to_model
from planner.training.build import build_training_graph

MODELS = Path(__file__).parent.parent / "models"
RATES = {"sgd": 0.05, "momentum": 0.02, "adam": 0.001}
KEPT, STRIDE, BATCH = 24, 7, 8


def data(model, step):
    rng = np.random.default_rng(0)
    if model == "bert":
        tokens = rng.integers(0, 256, step.tensors["a_0"].shape)
        return {"a_0": tokens, "a_1": np.ones(tokens.shape, np.int64), "labels": rng.integers(0, 2, BATCH)}
    return {"a_0": rng.standard_normal(step.tensors["a_0"].shape).astype(np.float32),
            "labels": rng.integers(0, 10, BATCH)}  # fmt: skip


@pytest.mark.parametrize("model", ["resnet50", "bert"])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_a_step_is_pytorchs(model, optimizer):
    reference = np.load(MODELS / "torch" / f"{model}.{optimizer}.npz")
    # PyTorch's Adam adds epsilon where AdamW does.
    step = build_training_graph(
        read_model(MODELS / f"{model}.raw.onnx"), loss="softmax_cross_entropy", learning_rate=RATES[optimizer],
        optimizer="adamw" if optimizer == "adam" else optimizer, batch=BATCH,
    )  # fmt: skip
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        to_model(step).SerializeToString(), options, disabled_optimizers=["NchwcTransformer"],
        providers=["CPUExecutionProvider"],
    )  # fmt: skip
    feeds = {**step.initial, **data(model, step)}
    first = dict(zip(step.outputs, session.run(None, feeds), strict=True))
    assert first["loss"] == pytest.approx(reference["losses"][0], abs=1e-5)

    before = {key.removeprefix("before/"): value for key, value in reference.items() if key.startswith("before/")}
    assert before.keys() <= {pair.current for pair in step.state}
    for name, bits in before.items():
        feeds[name] = (bits.astype(np.uint32) << 16).view(np.float32)
    if optimizer == "adam":
        feeds["updates"] = np.array(KEPT, np.int64)
    found = dict(zip(step.outputs, session.run(None, feeds), strict=True))
    assert found["loss"] == pytest.approx(reference["losses"][KEPT], abs=1e-5)
    following = {pair.current: found[pair.following] for pair in step.state}
    for name in before:
        exact, theirs = reference[f"exact/{name}"].astype(np.float64), reference[f"after/{name}"]
        found_after = following[name].reshape(-1)[::STRIDE]
        if model == "resnet50" and optimizer == "adam":
            # Among a million activations some are within rounding of 0, where Relu's slope jumps: one that falls on
            # the other side shifts the gradients of all layers before it, and Adam divides by their size.
            assert np.linalg.norm(found_after - exact) <= 1e-2 * np.linalg.norm(exact), name
            continue
        largest = np.abs(exact).max() or 1.0
        error, own = (np.abs(value - exact) / largest for value in (found_after, theirs))
        for judge in (np.max, np.median):
            assert judge(error) <= max(4 * judge(own), 64 * np.finfo(np.float32).eps), name
