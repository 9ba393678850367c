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

from export_models import SMALL, pins_of, written
from planner import api

pytestmark = [
    pytest.mark.exports,
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed: make test-exports does"),
]

_TOOL = Path(__file__).parents[1] / "tools" / "jax_steps.py"
_ON_4 = ("mlp-4x512", "cnn-3x16-12", "lenet-5", "ort-transformer", "gpt-1x64")
_CASES = [
    *((name, 4) for name in _ON_4),
    *(("mlp-5x300", workers) for workers in (2, 4, 8, 3, 6)),
    *(("cnn-3x16-12 by rows", workers) for workers in (2, 4, 3)),
    *(("ort-mlp", workers) for workers in (2, 8, 3)),
]
"""Those that XLA compiles in seconds; it is to take no more than four minutes of CI."""


def _run(name: str, workers: int, folder: Path) -> tuple[int, dict[str, float]]:
    """What a model's plan moves, and what its exported step was found to do."""
    return _run_file(written(name, folder), workers, pins_of(name), folder)


def _run_file(model: Path, workers: int, pins: dict[str, str], folder: Path) -> tuple[int, dict[str, float]]:
    plan, file = folder / "plan", folder / "step.py"
    predicted = api.plan(model, gpus=workers, pin=pins, effort="quick", out=plan).plan.moved_bytes
    assert api.export(plan, jax=file).moved_bytes == predicted
    done = subprocess.run(
        [sys.executable, _TOOL, plan, file, "3"], check=False, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return predicted, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("name", "workers"), _CASES, ids=[f"{name} on {workers}" for name, workers in _CASES])
def test_bytes_are_the_plans_and_numbers_those_of_onnx_runtime(name: str, workers: int, tmp_path: Path) -> None:
    predicted, found = _run(name, workers, tmp_path)
    assert found["error"] <= 1e-5, found
    assert found["moved_bytes"] == predicted, found


@pytest.mark.parametrize("name", SMALL)
def test_one_op_or_two(name: str, tmp_path: Path) -> None:
    text, workers, pins = SMALL[name]
    model = tmp_path / "m.onnx"
    model.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    _, found = _run_file(model, workers, pins, tmp_path)
    assert found["error"] <= 1e-5, found
