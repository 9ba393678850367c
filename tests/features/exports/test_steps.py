"""Exported steps run in JAX: what XLA's program moves is what the plan says, and numbers are ONNX Runtime's.

`make test-exports` runs these; `bench/jax_exports.py` has twelve models on five numbers of workers.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from export_models import ATTENTIONS, SMALL, pins_of, written
from planner import api
from planner.artifacts.plan import Plan

pytestmark = [
    pytest.mark.exports,
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed: make test-exports does"),
]

_TOOL = Path(__file__).parents[2] / "tools" / "jax_steps.py"
_ON_4 = ("mlp-4x512", "cnn-3x16-12", "lenet-5", "ort-transformer", "gpt-1x64")
_CASES = [
    *((name, 4) for name in _ON_4),
    *(("mlp-5x300", workers) for workers in (2, 4, 8, 3, 6)),
    *(("cnn-3x16-12 by rows", workers) for workers in (2, 4, 3)),
    *(("ort-mlp", workers) for workers in (2, 8, 3)),
]
"""Those that XLA compiles in seconds; it is to take no more than four minutes of CI."""


def _run(
    model: Path, workers: int, pins: dict[str, str], folder: Path, scale: float = 0.01
) -> tuple[Plan, dict[str, float]]:
    """A model's plan, and what its exported step was found to do."""
    directory, file = folder / "plan", folder / "step.py"
    plan = api.plan(model, gpus=workers, pin=pins, effort="quick", out=directory).plan
    assert api.export(directory, jax=file).moved_bytes == plan.moved_bytes
    command = [sys.executable, _TOOL, directory, file, "3", str(scale)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return plan, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("name", "workers"), _CASES, ids=[f"{name} on {workers}" for name, workers in _CASES])
def test_bytes_are_the_plans_and_numbers_those_of_onnx_runtime(name: str, workers: int, tmp_path: Path) -> None:
    plan, result = _run(written(name, tmp_path), workers, pins_of(name), tmp_path)
    assert result["error"] <= 1e-5, result
    assert result["moved_bytes"] == plan.moved_bytes, result


@pytest.mark.parametrize("name", SMALL)
def test_one_op_or_two(name: str, tmp_path: Path) -> None:
    text, workers, pins = SMALL[name]
    _, result = _run(_parsed(text, tmp_path), workers, pins, tmp_path)
    assert result["error"] <= 1e-5, result


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_along_keys(name: str, tmp_path: Path) -> None:
    """Partial maxima, sums and weighted sums are joined, and bytes are the plan's."""
    text, workers, pins = ATTENTIONS[name]
    model = _parsed(text, tmp_path)
    if name == "training":
        api.grad(model, loss="mse", optimizer="sgd", params=("w*",), output=tmp_path / "step.onnx")
        model = tmp_path / "step.onnx"
    plan, result = _run(model, workers, pins, tmp_path, scale=1.0)
    assert {"Attention.y", "GroupQueryAttention.y"}.isdisjoint(plan.strategies), "through its body"
    assert result["error"] <= 1e-5, result
    assert result["moved_bytes"] == plan.moved_bytes > 0, result


def _parsed(text: str, folder: Path) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    return path
