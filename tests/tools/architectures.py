"""The architectures that ship in the onnx package: weights re-drawn, training graphs built, gradients checked.

    python tests/tools/architectures.py [NAME ...] [--batch N]

For each: the ops of its training graph, the loss, and one directional derivative of the loss by the graph's gradients
beside the central difference of two runs (both as the change of the loss).
"""

from __future__ import annotations

import argparse
import gc
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx

import stock_runtime
from planner.errors import TofuError
from planner.graph.core.model import Graph
from planner.graph.reading.from_onnx import read_model
from planner.training.build import build_training_graph

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
STEP = 1e-3
"""By how much the loss moves, about: more meets kinks of Relu and MaxPool, less drowns in rounding."""
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("light_*.onnx")))


def redrawn(graph: Graph, seed: int = 0) -> Graph:
    """The model with its constant weights drawn anew: He-normal matrices and kernels, norms near the identity."""
    rng = np.random.default_rng(seed)
    norms = {name: position for op in graph.ops if op.op_type == "BatchNormalization"
             for position, name in enumerate(op.inputs)}  # fmt: skip
    constants = dict(graph.constants)
    for name, value in graph.constants.items():
        tensor = graph.tensors[name]
        if name in graph.folded or not tensor.dtype.is_float or not tensor.shape:
            continue
        if norms.get(name) in (1, 4):
            drawn = 1 + 0.1 * rng.random(tensor.shape)
        elif len(tensor.shape) == 1 or value is None:
            drawn = 0.1 * rng.standard_normal(tensor.shape)
        else:
            fan_in = tensor.elements // tensor.shape[0]
            drawn = np.sqrt(2 / fan_in) * rng.standard_normal(tensor.shape, dtype=np.float32)
        constants[name] = drawn.astype(np.float32)
    return replace(graph, constants=constants)


def at_logits(graph: Graph) -> Graph:
    """The model without the Softmax that it ends in: the loss has one of its own."""
    (output,) = graph.outputs
    ops = list(graph.ops)
    while graph.producer[output].op_type in ("Softmax", "Reshape", "Flatten") and "Softmax" in {
        op.op_type for op in ops
    }:
        op = graph.producer[output]
        ops.remove(op)
        output = op.inputs[0]
    read = {name for op in ops for name in (*op.inputs, *op.outputs) if name} | set(graph.inputs)
    return replace(
        graph, ops=tuple(ops), outputs=(output,),
        tensors={name: tensor for name, tensor in graph.tensors.items() if name in read},
        constants={name: value for name, value in graph.constants.items() if name in read},
        folded=graph.folded & read,
    )  # fmt: skip


def step_of(name: str, batch: int | None = None, *, has_weights: bool = True) -> Graph:
    """The training graph of an architecture.

    Args:
        name: see ``NAMES``.
        batch: number of samples; None: the one of the file.
        has_weights: whether its weights are re-drawn; else they have no values.

    Raises:
        TofuError: it cannot be a training graph; the error says which ops are in the way.
    """
    graph = at_logits(read_model(FOLDER / f"{name}.onnx"))
    step = build_training_graph(
        redrawn(graph) if has_weights else graph,
        loss="softmax_cross_entropy", optimizer="sgd", learning_rate=1.0 if has_weights else 0.01, batch=batch,
    )  # fmt: skip
    states = {pair.current for pair in step.state}
    bare = {key: None if key in states else value for key, value in step.initial.items()}
    return step if has_weights else replace(step, initial=bare)


def check(name: str, batch: int | None = None, moved: float = STEP) -> dict[str, object]:
    """Build, run and check one architecture.

    Args:
        name: see ``NAMES``.
        batch: number of samples; None: the one of the file.
        moved: by how much the loss moves, see ``STEP``.

    Raises:
        TofuError: it cannot be a training graph; the error says which ops are in the way.
    """
    started = time.perf_counter()
    step = step_of(name, batch)
    built_seconds = time.perf_counter() - started
    ops = len(step.ops)
    rng = np.random.default_rng(1)
    feeds = {}
    for key in step.inputs:
        tensor = step.tensors[key]
        if key in step.initial:
            feeds[key] = np.ascontiguousarray(step.initial[key])
        elif key == "labels":
            feeds[key] = rng.integers(0, 1000, tensor.shape)
        else:
            feeds[key] = rng.standard_normal(tensor.shape).astype(np.float32)
    loss, found, expected = directional(step, feeds, moved)
    return {"ops": ops, "states": len(step.state), "loss": loss, "derivative": found, "difference": expected,
            "built_seconds": built_seconds}  # fmt: skip


def directional(step: Graph, feeds: dict[str, np.ndarray], moved: float = STEP) -> tuple[float, float, float]:
    """The loss of a step of SGD with rate 1, and how it changes along the gradient.

    Args:
        step: the training graph.
        feeds: values of all its inputs.
        moved: by how much the loss moves, see ``STEP``.

    Returns:
        The loss; its change between two points around the state, by the graph's gradients; and as two runs find it.
    """
    # Running statistics are state, too, but none that the loss sees: their factor is no 1.
    parameters = [pair.current for pair in step.state if _is_stepped(step, pair.following)]
    bare = replace(step, initial={})
    session = stock_runtime.session(bare, threads=2)
    wanted = ["loss", *(f"{key}.next" for key in parameters)]
    results = dict(zip(wanted, session.run(wanted, feeds), strict=True))
    gradients = {key: feeds[key] - results.pop(f"{key}.next") for key in parameters}
    norm = float(np.sqrt(sum(np.square(gradient, dtype=np.float64).sum() for gradient in gradients.values())))
    scale = np.float32(moved / max(norm, 1e-30) ** 2)

    def ahead(sign: float) -> tuple[float, dict[str, np.ndarray]]:
        moved = {key: feeds[key] + np.float32(sign) * scale * gradients[key] for key in parameters}
        return float(session.run(["loss"], {**feeds, **moved})[0]), moved

    above, forwards = ahead(1.0)
    below, backwards = ahead(-1.0)
    # What was moved in float32, not what should have been: much of a small step is lost in rounding.
    found = sum(
        float((gradients[key].astype(np.float64) * (forwards[key].astype(np.float64) - backwards[key])).sum())
        for key in parameters
    )
    gc.collect()
    return float(results["loss"]), found, above - below


def _is_stepped(step: Graph, following: str) -> bool:
    """Whether a next state is a parameter's: what SGD's subtraction makes."""
    return step.producer[following].op_type == "Sub"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--batch", type=int)
    given = parser.parse_args()
    for name in given.names or NAMES:
        try:
            row = check(name, given.batch)
        except TofuError as error:
            print(f"{name}: {error}", flush=True)
            continue
        print(name, " ".join(f"{key}={value:.6g}" for key, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
