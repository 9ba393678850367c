"""``tofu diff`` and the forms of ``tofu check``: what is printed where."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.commands import main as cli


@pytest.fixture
def costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The line of a check that fails."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    line = "check mlp-2x40 --gpus 2 --baseline costs.json".split()
    assert cli.main([*line, "--update"]) == 0
    file = Path("costs.json")
    data = json.loads(file.read_text())
    data["models"]["mlp-2x40"]["plans"]["2"]["cost"] -= 1
    file.write_text(json.dumps(data))
    capsys.readouterr()
    return line


@pytest.mark.parametrize("form", ["", "--json", "--markdown"])
def test_annotations_go_to_stderr_beside_every_form(
    form: str, costs: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert cli.main([*costs, *form.split()]) == 1
    out, err = capsys.readouterr()
    assert "::error" not in out
    assert err.startswith(
        "::error file=costs.json,title=mlp-2x40 on 2 workers costs more than costs.json says::cost grew"
    )
    assert err.count("\n") == 1
    if form == "--json":
        assert json.loads(out)["passed"] is False
    else:
        assert out.startswith("### " if form else "1 of 1 plans cost more than costs.json says\n")


def test_a_refusal_is_an_annotation_too(
    costs: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert cli.main([*costs, "--max-increase", "lots"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("::error file=costs.json,title=--max-increase%3A ")
    assert "\nerror: --max-increase: " in err


def test_no_annotations_elsewhere(costs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(costs) == 1
    assert "::error" not in capsys.readouterr().err


def test_a_check_that_passes_annotates_nothing(
    costs: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert cli.main([*costs, "--max-increase", "1%"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", ["check", "diff"])
def test_the_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"Examples:\n    tofu {command} " in out
    assert "--markdown" in out
