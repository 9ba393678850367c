"""``tofu check``: what it passes on, its verdict, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import Answer, Door
from planner.commands import main as cli


def test_check_passes_its_options(door: Door) -> None:
    line = "check m.onnx alexnet --gpus 2,4 --baseline c.json --max-increase 1% --update --dim b=2"
    door.answer = lambda: Answer("check", is_passed=True)
    assert cli.main(line.split()) == 0
    assert door.calls == [
        (
            "check",
            ((Path("m.onnx"), Path("alexnet")),),
            {
                "gpus": (2, 4),
                "baseline": Path("c.json"),
                "max_increase": "1%",
                "update": True,
                "dim": {"b": 2},
            },
        )
    ]


@pytest.mark.parametrize("json_wanted", [False, True])
def test_a_check_that_fails_exits_with_1(json_wanted: bool, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    door.answer = lambda: Answer("check", is_passed=False)
    line = "check m.onnx --gpus 2 --baseline c.json".split()
    assert cli.main([*line, *(["--json"] if json_wanted else [])]) == 1
    assert capsys.readouterr().out


@pytest.mark.parametrize("counts", ["", "0", "2,", "2 4", "-2", "two", "2,0"])
def test_gpus_of_a_check_are_counts(counts: str, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "m.onnx", "--gpus", counts, "--baseline", "c.json"]) == 2
    assert "whole numbers" in capsys.readouterr().err
    assert not door.calls


def test_without_a_baseline_it_says_how_one_is_made(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main("check m.onnx --gpus 2".split()) == 2
    assert capsys.readouterr().err == (
        "error: missing option '--baseline'\n"
        "hint: write --baseline FILE.json: what plans cost before; --update writes it; see tofu check --help\n"
    )
    assert door.calls == []
