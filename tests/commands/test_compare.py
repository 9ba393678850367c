"""``tofu compare``: what it refuses, and what it says of a plan."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from command_line import Door, assert_refused
from planner.commands import main as cli


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("compare m.onnx", "compare: for how many GPUs?\nhint: write --gpus K, or --topology with a file or a name"),
    ],
)
def test_bad_usage(line: str, says: str, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    assert_refused(line, says, door, capsys)


@pytest.mark.parametrize("quiet", [False, True])
def test_the_rules_of_a_plan_are_left_out(
    quiet: bool,
    door: Door,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("planner.api.compare", partial(door.call, "compare"), raising=False)
    (tmp_path / "manifest.json").touch()
    assert cli.main(["compare", str(tmp_path), *["-q"] * quiet]) == 0
    note = f"note: every strategy is planned anew, without the pins, forbidden tilings and limit of {tmp_path}\n"
    assert capsys.readouterr().err.startswith(note) is not quiet
    assert door.calls.pop()[0] == "compare"
