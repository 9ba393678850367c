"""Which committed models can have another batch: `python tests/tools/batches.py` prints a table.

A model whose batch changes is run with twice as many samples, and compared half by half with the model as it is.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from command_line import ROOT
from planner import opdefs
from planner.errors import TofuError, UnsupportedError
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import graph_from_proto, read_model
from planner.training.batch.change import samples_of_inputs, with_batch
from planner.training.build import sample_of
from stock_runtime import run

REASONS = (
    *("mixes samples", "over the samples", "along the batch", "tears the batch", "samples at different"),
    *("among the samples", "samples by", "all samples"),
)
"""Words of a refusal that says how an op mixes samples; others say what cannot be followed."""


def drawn(graph: Graph, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """An input's values."""
    rng, tensor = np.random.default_rng(len(name)), graph.tensors[name]
    if tensor.dtype.is_float:
        return rng.standard_normal(shape).astype(tensor.dtype.array_dtype)
    return rng.integers(0, sample_of(graph, name).get("integers_below", 2), shape).astype(tensor.dtype.array_dtype)


def difference(graph: Graph, count: int) -> float:
    """The largest difference between halves of the doubled model's outputs and the model's own, relative to these."""
    double, tracks, worst = with_batch(graph, 2 * count), samples_of_inputs(graph)[1], 0.0
    feeds = {name: drawn(graph, name, double.tensors[name].shape) for name in double.inputs}
    whole = run(double, feeds)
    for half in range(2):
        own = {
            name: np.split(value, 2, tracks[name].dim)[half] if name in tracks else value
            for name, value in feeds.items()
        }
        for name, expected in run(graph, own).items():
            grown = [dim for dim, size in enumerate(expected.shape) if whole[name].shape[dim] != size]
            part = np.split(whole[name], 2, grown[0])[half] if grown else whole[name]
            scale = np.abs(expected.astype(np.float64)).max(initial=1e-9)
            worst = max(worst, float(np.abs(part.astype(np.float64) - expected).max(initial=0.0) / scale))
    return worst


def outcome(path: Path) -> tuple[str, tuple[str, ...]]:
    """One word or two of what becomes of a model; and the words of the refusal."""
    try:
        graph = read_model(path, operators=opdefs.standard())
        count, _ = samples_of_inputs(graph)
        changed = with_batch(graph, 2 * count or 1)
    except UnsupportedError as error:
        if not error.what.startswith("the batch"):
            return "no batch", (error.what,)
        told = all(any(word in fact for word in REASONS) for fact in error.facts)
        return f"refused {'with the op that mixes' if told else 'otherwise'}", error.facts
    except TofuError as error:
        return "not read", (error.what,)
    is_held = all(value is not None for value in graph.constants.values())
    if is_held and sum(tensor.elements for tensor in graph.tensors.values()) < 1 << 26:
        worst = difference(graph, count)
        return ("works" if worst < 1e-3 else "WRONG"), (f"{worst:.1e}",)
    again = graph_from_proto(to_model(changed), operators=opdefs.standard())
    return ("works" if again.tensors == changed.tensors else "WRONG"), ("not run, but its shapes are what ONNX infers",)


if __name__ == "__main__":
    counts: dict[str, int] = {}
    for path in [Path(name) for name in sys.argv[1:]] or sorted((ROOT / "tests" / "models").rglob("*.onnx")):
        kind, facts = outcome(path)
        counts[kind] = counts.get(kind, 0) + 1
        print(f"{path}: {kind}; {'; '.join(facts[:3])}", flush=True)
    print(counts)
