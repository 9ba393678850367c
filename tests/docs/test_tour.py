"""The README's tour, typed: its lines one after the other, in a folder that has the repository's ``tests``."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from typed_lines import typing_environment

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
TOUR = README[README.index("## A short tour") : README.index("## How it works")]
LINES = re.findall(r"^    \$ (.+)$", TOUR, re.MULTILINE)
FIRST, *REST = LINES


@pytest.mark.slow
def test_every_line_works_in_its_order(tmp_path: Path) -> None:
    folder = tmp_path / "clone"
    folder.mkdir()
    (folder / "tests").symlink_to(ROOT / "tests")
    environment = typing_environment(tmp_path / "bin")
    for line in REST:
        done = subprocess.run(
            ["bash", "-euc", line], cwd=folder, env=environment, text=True, capture_output=True, timeout=600
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    made = {path.name for path in folder.iterdir()}
    assert made >= {"train.onnx", "plan", "timed", "pinned", "plan.html", "trace.json", "batch.npz", "out.npz"}
    assert made >= {"train_step.py", "placements.py", "wresnet.onnx", "costs.json"}


def test_the_tour_shows_every_command() -> None:
    assert FIRST == ". .venv/bin/activate", "the virtual environment that make has set up"
    commands = set(re.findall(r"^tofu (\w+)", "\n".join(REST), re.MULTILINE))
    shown = {"grad", "plan", "explain", "diff", "report", "run", "export", "compare", "fit", "ops", "zoo", "check"}
    assert commands == shown
