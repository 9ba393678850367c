"""``tofu zoo``: the list, the file, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.commands import main as cli
from planner.features.zoo import models as zoo
from planner.graph.reading.from_onnx import read_model


def test_lists_every_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["zoo"]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines()[2 : 2 + len(zoo.names())]] == list(zoo.names())
    assert "wresnet-D-W" in shown
    assert cli.main(["zoo", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [model["name"] for family in listed["families"] for model in family["models"]] == list(zoo.names())


def test_writes_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["zoo", "alexnet", "--batch", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["parameters"] == 61_100_840
    assert result["weight_bytes"] == result["state_bytes"] == 4 * 61_100_840
    graph = read_model(tmp_path / result["output"])
    assert graph.tensors["x"].shape == (2, 3, 224, 224)
    assert len(graph.ops) == result["ops"]
    assert cli.main(["zoo", "lenet-5", "--optimizer", "momentum", "-o", "lenet.onnx"]) == 0
    assert "61,706" in capsys.readouterr().out
    assert (tmp_path / "lenet.onnx").is_file()
    assert cli.main(["zoo", "lenet-5", "-o", "deep/lenet.onnx"]) == 2
    assert "there is no folder deep" in capsys.readouterr().err
    assert not (tmp_path / "deep").exists()


def test_refusals(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["zoo", "alexnett"]) == 2
    assert "did you mean 'alexnet'?" in capsys.readouterr().err
    assert cli.main(["zoo", "--batch", "2"]) == 2
    assert "which model" in capsys.readouterr().err
