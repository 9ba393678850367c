"""A command that is given no plan takes the newest one, and says which."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner import api
from planner.commands import main as cli
from planner.features.zoo.models import build
from planner.graph.files.to_onnx import write_model

NOTE = "note: no plan is named; newer is the newest here\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two plans of one model lie."""
    folder = tmp_path_factory.mktemp("newest")
    write_model(build("mlp-1x8", batch=4), folder / "m.onnx")
    for name in ("older", "newer"):
        api.plan(folder / "m.onnx", gpus=2, effort="quick", out=folder / name)
    return folder


@pytest.mark.parametrize(
    "line",
    [
        "explain",
        "explain --json",
        "explain --view memory",
        "explain w1",
        "run --steps 1",
        "run --steps 1 --json",
        "report -o page.html",
        "export --to placements -o placements.py",
        "prove",
        "build --force",
    ],
)
def test_the_newest_plan_is_named(
    line: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert cli.main(line.split()) == 0
    assert capsys.readouterr().err.count(NOTE) == 1
    command, *options = line.split()
    assert cli.main([command, "./older", *options]) == 0
    assert "no plan is named" not in capsys.readouterr().err


def test_a_model_is_no_tensor(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    for line in ("explain m.onnx", "explain nosuch.onnx"):
        assert cli.main(line.split()) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"error: {line.split()[1]} holds no plan\n")
        assert "tofu plan" in said
    assert cli.main(["explain", "mlp-1x8"]) == 2
    assert "or the plan's folder first" in capsys.readouterr().err
