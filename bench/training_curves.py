"""Losses of 50 free-running steps of the built training graphs beside PyTorch's (no judgement: curves diverge).

    python bench/training_curves.py [--every 5]

On ResNet-50 two float32 runs that differ only in the order of additions are some per cent apart after a few steps.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnxruntime

from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import read_model
from planner.training.build import build_training_graph

MODELS = Path(__file__).parent.parent / "tests" / "models"
RATES = {"sgd": 0.05, "momentum": 0.02, "adam": 0.001}
BATCH = 8


def feeds_of(model: str, step: Graph) -> dict[str, np.ndarray]:
    """The batch that the references were made with."""
    rng = np.random.default_rng(0)
    if model == "bert":
        tokens = rng.integers(0, 256, step.tensors["a_0"].shape)
        return {"a_0": tokens, "a_1": np.ones(tokens.shape, np.int64), "labels": rng.integers(0, 2, BATCH)}
    x = rng.standard_normal(step.tensors["a_0"].shape).astype(np.float32)
    return {"a_0": x, "labels": rng.integers(0, 10, BATCH)}


def curve(model: str, optimizer: str, steps: int) -> list[float]:
    """The losses of some steps of the built graph."""
    step = build_training_graph(
        read_model(MODELS / f"{model}.raw.onnx"),
        loss="softmax_cross_entropy",
        optimizer="adamw" if optimizer == "adam" else optimizer,
        learning_rate=RATES[optimizer],
        batch=BATCH,
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        to_model(step).SerializeToString(),
        options,
        disabled_optimizers=["NchwcTransformer"],
        providers=["CPUExecutionProvider"],
    )
    feeds: dict[str, np.ndarray | None] = {**step.initial, **feeds_of(model, step)}
    losses: list[float] = []
    for _ in range(steps):
        outputs = dict(zip(step.outputs, session.run(None, feeds), strict=True))
        feeds.update((pair.current, outputs[pair.following]) for pair in step.state)
        losses.append(float(outputs["loss"]))
    return losses


def main() -> None:
    """Print the curves side by side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=5)
    every = parser.parse_args().every
    for model in ("resnet50", "bert"):
        for optimizer in RATES:
            reference = np.load(MODELS / "torch" / f"{model}.{optimizer}.npz")["losses"]
            found = curve(model, optimizer, len(reference))
            print(f"\n{model}, {optimizer}, batch {BATCH}\n{'step':>4}  {'tofu':>10}  {'PyTorch':>10}")
            for index in range(0, len(reference), every):
                print(f"{index:>4}  {found[index]:>10.6f}  {reference[index]:>10.6f}")


if __name__ == "__main__":
    main()
