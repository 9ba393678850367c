"""``tofu export``: what it writes, and what it refuses before anything is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import cli
from planner import api


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    api.zoo("mlp-2x64", batch=8, output=folder / "mlp.onnx")
    api.plan(folder / "mlp.onnx", gpus=4, effort="quick", out=folder / "plan")
    return folder / "plan"


def test_both_files_are_python_and_the_bytes_the_plans(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step, placements = tmp_path / "step.py", tmp_path / "placements.py"
    assert cli.main(["export", str(plan), "--jax", str(step), "--placements", str(placements), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["moved_bytes"] == found["predicted_bytes"] > 0
    compile(step.read_text(), "step.py", "exec")
    compile(placements.read_text(), "placements.py", "exec")
    imports = [line for line in step.read_text().splitlines() if line.startswith(("import ", "from "))]
    assert {line.split()[1].partition(".")[0] for line in imports} == {"jax"}


def test_nothing_asked_for_is_a_usage_error(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", str(plan)]) == 2
    assert "what is to be written?" in capsys.readouterr().err


def test_a_folder_that_is_no_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", str(tmp_path), "--jax", str(tmp_path / "step.py")]) == 2
    assert "holds no plan" in capsys.readouterr().err
    assert not (tmp_path / "step.py").exists()
