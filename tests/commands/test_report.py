"""``tofu report``: its options, and what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import Door, model_file
from planner.commands import main as cli


def test_report_hands_its_options_on(door: Door) -> None:
    line = "report p -o p.html --svg s.svg --trace t.json --topology m.yaml --profile d.json --opdefs o.py"
    assert cli.main(line.split()) == 0
    assert door.calls.pop() == (
        "report",
        (Path("p"),),
        {
            "output": Path("p.html"),
            "svg": Path("s.svg"),
            "trace": Path("t.json"),
            "topology": "m.yaml",
            "profile": Path("d.json"),
            "opdefs": Path("o.py"),
        },
    )


def test_what_is_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", str(model_file(tmp_path, "x")), "--gpus", "2", "--out", str(tmp_path / "p")]) == 0
    capsys.readouterr()
    page = tmp_path / "p.html"
    assert cli.main(["report", str(tmp_path / "p"), "-o", str(page), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["page"], found["page_bytes"]) == (str(page), page.stat().st_size)
    assert cli.main(["report", str(tmp_path / "p"), "-o", str(page)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"page      {page}, ")
    assert "left out  the schedule: No schedule is drawn: the plan is for no topology" in out


def test_a_folder_that_is_no_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", str(tmp_path), "-o", str(tmp_path / "p.html")]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path} holds no plan\nhint: write one with `tofu plan`\n"
    assert cli.main(["report", str(tmp_path)]) == 2
    assert "hint: write -o plan.html, --svg FILE or --trace FILE" in capsys.readouterr().err
