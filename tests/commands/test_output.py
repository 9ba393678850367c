"""What every command prints where: the result, JSON, progress, names that could steer a terminal."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from command_line import COMMANDS, GOOD_LINES, Answer, Door, model_file
from planner.commands import main as cli


@pytest.mark.parametrize("command", COMMANDS)
def test_the_result_alone_is_on_stdout(command: str, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(GOOD_LINES[command].split()) == 0
    assert capsys.readouterr() == ("table\n", "a library speaks\n")
    assert cli.main([*GOOD_LINES[command].split(), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"schema_version": 1, "command": command, "é": "×"}
    assert out.isascii()
    assert err == "a library speaks\n"


@pytest.mark.parametrize("command", ["grad", "plan", "run"])
def test_progress_is_one_line_on_a_terminal(
    command: str, door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert cli.main([*GOOD_LINES[command].split(), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["command"] == command
    assert err.endswith("\r0 s  reading [conv1]\x1b[Ka library speaks\n\r\x1b[K")


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_erase_gets_no_line_of_a_short_command(
    term: str, door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", term)
    assert cli.main(GOOD_LINES["plan"].split()) == 0
    assert capsys.readouterr().err == "a library speaks\n"


def test_json_is_whole_or_absent(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    door.answer = lambda: Answer("plan", é=object())
    assert cli.main(["plan", "m.onnx", "--gpus", "2", "--json"]) == 4
    assert capsys.readouterr().out == ""


def test_control_characters_of_a_model_are_shown_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, folder = str(model_file(tmp_path, "\x1b[31mred")), str(tmp_path / "plan")
    assert cli.main(["plan", model, "--gpus", "2", "-o", folder]) == 0
    assert cli.main(["explain", folder]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert cli.main(["explain", folder, "--view", "all"]) == 0
    every = capsys.readouterr().out
    assert "\x1b" not in every
    assert "\\x1b[31mred" in every
    assert cli.main(["plan", model, "--gpus", "2", "-o", f"{folder}2", "--pin", "\x1b[31mred=S(7)"]) == 2
    refused = capsys.readouterr().err
    assert "\x1b" not in refused
    assert "\\x1b[31mred" in refused
