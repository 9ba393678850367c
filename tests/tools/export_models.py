"""The models with which exports are tried: of the zoo, and of others' tools, small enough for a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from planner.api import grad, zoo

_MODELS: Final = Path(__file__).parents[1] / "models"
_ZOO: Final = {
    "mlp-5x300": ("mlp-5x300", None),
    "mlp-4x512": ("mlp-4x512", 64),
    "cnn-3x16-12": ("cnn-3x16-12", 8),
    "cnn-3x16-12 by rows": ("cnn-3x16-12", 8),
    "lenet-5": ("lenet-5", 16),
    "gpt-1x64": ("gpt-1x64-1h", 1),
    "gpt-1x64-lm": ("gpt-1x64-1h-lm", 1),
    "rnn-1-1k": ("rnn-1-1k", 8),
}
"""By name, the zoo's, and the batch."""
_ARTIFACTS: Final = {
    "ort-mlp": "ort_training_mlp",
    "ort-cnn": "ort_training_cnn",
    "ort-transformer": "ort_training_transformer",
}
_BY_ROWS: Final = {"x": "S(2)", "target": "S(2)", "conv*.y": "S(2)"}
NAMES: Final = (*_ZOO, *_ARTIFACTS, "bert")
"""Twelve."""


def pins_of(name: str) -> dict[str, str]:
    """What a model's plan is pinned to: images cut along their rows have halos."""
    return _BY_ROWS if name.endswith("by rows") else {}


def written(name: str, folder: Path) -> Path:
    """Writes a model.

    Args:
        name: one of ``NAMES``.
        folder: where.
    """
    target = folder / f"{name.replace(' ', '-')}.onnx"
    if name in _ZOO:
        called, batch = _ZOO[name]
        zoo(called, batch=batch, output=target)
    elif name in _ARTIFACTS:
        grad(_MODELS / _ARTIFACTS[name], output=target)
    else:
        target.write_bytes((_MODELS / "bert_step.onnx").read_bytes())
    return target
