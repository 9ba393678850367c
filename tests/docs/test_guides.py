"""The lines of pages for users do and print what the pages say, typed in their order in one folder for each page."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import planner
from typed_lines import try_commands

ROOT = Path(__file__).parents[2]
PAGES = ("run", "verify", "export", "ci", "python", "plan", "read-a-plan")
"""Pages with blocks ``console`` whose lines the fixture's files are enough for."""
ROWS, FEATURES, CLASSES = 128, 64, 16


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the model of the first plan, its training step and plan, and data of four batches."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "tests" / "models" / "first_plan.onnx", "model.onnx")
    planner.grad("model.onnx", loss="softmax_cross_entropy", optimizer="momentum", lr=0.05, output="train.onnx")
    planner.plan("train.onnx", gpus=4, out="plan")
    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((ROWS, FEATURES)).astype(np.float32), rng.integers(CLASSES, size=ROWS)
    np.savez("data.npz", x=x, labels=labels)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_typed_lines_print_what_the_page_shows(page: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```console\n(.*?)^```", (ROOT / "docs" / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        try_commands(block, capsys)
