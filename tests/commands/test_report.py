"""``tofu report``: its options, and what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import Door, assert_refused, model_file
from planner.commands import main as cli


def test_report_hands_its_files_on(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main("report p -o p.html -o s.svg -o t.json".split()) == 0
    files = {"output": Path("p.html"), "svg": Path("s.svg"), "trace": Path("t.json")}
    assert door.calls.pop() == ("report", (Path("p"),), files)
    capsys.readouterr()
    assert_refused("report p -o p.pdf", "end it in .html or .svg or .json", door, capsys)
    assert_refused("report p -o a.svg -o b.svg", "both are of one kind", door, capsys)


def test_what_is_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", str(model_file(tmp_path, "x")), "--gpus", "2", "-o", str(tmp_path / "p")]) == 0
    capsys.readouterr()
    page = tmp_path / "p.html"
    assert cli.main(["report", str(tmp_path / "p"), "-o", str(page), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["page"], found["page_bytes"]) == (str(page), page.stat().st_size)
    assert cli.main(["report", str(tmp_path / "p"), "-o", str(page)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"page      {page}, ")
    assert "left out  the schedule: No schedule is drawn: the plan is for no topology" in out


def test_a_page_lies_in_the_plans_folder_unless_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["plan", str(model_file(tmp_path, "x")), "--gpus", "2", "-o", str(tmp_path / "p")]
    assert cli.main(line) == 0
    assert cli.main(["report", str(tmp_path / "p")]) == 0
    assert f"page      {tmp_path / 'p' / 'report.html'}, " in capsys.readouterr().out
    assert cli.main([*line, "--force"]) == 0  # the page is the plan's own


def test_a_folder_that_is_no_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", str(tmp_path), "-o", str(tmp_path / "p.html")]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path} holds no plan\nhint: write one with `tofu plan`\n"
