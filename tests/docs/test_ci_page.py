"""The workflow of docs/ci.md is one, and its step does what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner.commands import main as cli
from planner.features.zoo.models import build
from planner.graph.files.to_onnx import write_model

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs" / "ci.md").read_text(), re.MULTILINE | re.DOTALL)


def workflow() -> dict[str, Any]:
    """The first block of the page."""
    found: dict[str, Any] = yaml.safe_load(BLOCKS[0])
    return found


def test_it_is_a_workflow() -> None:
    job = workflow()["jobs"]["check"]
    assert job["runs-on"]
    assert all(("uses" in step) != ("run" in step) for step in job["steps"])
    assert workflow()["permissions"] == {"contents": "read"}
    further = yaml.safe_load(BLOCKS[1])
    assert further[0]["run"].startswith("tofu check ")
    assert further[1]["if"] == "always()"


@pytest.mark.slow
def test_its_step_fails_with_a_summary_and_an_annotation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = workflow()["jobs"]["check"]["steps"][-1]["run"]
    monkeypatch.chdir(tmp_path)
    write_model(build("mlp-2x40", batch=40), Path("train.onnx"))
    checked, _, _ = command.partition(" --markdown")
    assert cli.main([*checked.split()[1:], "--update"]) == 0
    write_model(build("mlp-2x48", batch=40), Path("train.onnx"))
    tofu = tmp_path / "bin" / "tofu"
    tofu.parent.mkdir()
    tofu.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ROOT / "cli.py"}" "$@"\n')
    tofu.chmod(0o755)
    around = {
        **os.environ,
        "PATH": f"{tofu.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "GITHUB_ACTIONS": "true",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }
    done = subprocess.run(["bash", "-e", "-c", command], env=around, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("::error file=train.onnx,title=train.onnx on ") == 2
    assert (tmp_path / "summary.md").read_text().startswith("### 2 of 2 plans cost more than costs.json says\n")
