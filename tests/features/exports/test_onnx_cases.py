"""ONNX's own node cases in JAX: an exported step gives what the case expects, or is refused with a finding."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.exports,
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed: make test-exports does"),
]
_TOOL = Path(__file__).parents[2] / "tools" / "jax_cases.py"


@pytest.mark.parametrize(("workers", "every"), [(2, 80), (3, 130), pytest.param(2, 1, marks=pytest.mark.nightly)])
def test_no_case_differs(workers: int, every: int) -> None:
    command = [sys.executable, _TOOL, str(workers), str(every)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=3600)
    *faults, last = done.stdout.splitlines() or [done.stderr[-2000:]]
    assert faults == []
    assert json.loads(last)["right"] >= 800 / every
