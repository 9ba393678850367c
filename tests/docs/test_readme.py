"""The README is short, its lines work as typed, and its table is the measured one."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from typed_lines import typing_environment

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
RESULTS = (ROOT / "bench" / "results" / "readme.md").read_text()


def section(title: str) -> str:
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def typed(line: str, folder: Path, environment: dict[str, str]) -> str:
    """What a line prints."""
    done = subprocess.run(
        ["bash", "-euc", line], cwd=folder, env=environment, text=True, capture_output=True, check=False, timeout=600
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_it_has_at_most_700_words() -> None:
    assert len(README.split()) <= 700


def test_the_plan_is_what_is_printed(tmp_path: Path) -> None:
    environment = typing_environment(tmp_path / "bin") | {"COLUMNS": "80"}
    block = re.search(r"(?:^    .*\n)+", section("A plan"), re.MULTILINE)
    assert block is not None
    lines = [line[4:] for line in block[0].splitlines()]
    commands = [line[2:] for line in lines if line.startswith("$ ")]
    assert commands[-1] == "tofu plan model.onnx --gpus 8"
    *_, printed = (typed(command, tmp_path, environment) for command in commands)
    shown = "\n".join(line for line in lines if not line.startswith("$ ") and line != "...")
    assert shown.count("\n") >= 5
    assert printed.startswith(shown), "the README shows the first lines"


@pytest.mark.slow
def test_six_commands_work_in_their_order(tmp_path: Path) -> None:
    environment = typing_environment(tmp_path / "bin")
    shutil.copy(ROOT / "tests" / "models" / "first_plan.onnx", tmp_path / "model.onnx")
    commands = re.findall(r"^    (tofu .+?) +#", section("Six commands"), re.MULTILINE)
    assert len(commands) == 6
    for command in commands:
        typed(command, tmp_path, environment)
    assert {path.name for path in tmp_path.iterdir()} >= {"model.train.onnx", "plan"}
    assert (tmp_path / "plan" / "report.html").is_file()


def table_of(text: str) -> list[str]:
    """The lines of the table of results."""
    table = re.search(r"^\|network\|GPUs\|.*\n(?:\|.*\n)+", text, re.MULTILINE)
    assert table is not None
    return table[0].splitlines()


def test_the_table_is_the_measured_one() -> None:
    assert table_of(README) == table_of(RESULTS), "copy it anew, after python bench/readme_table.py"
    assert len(table_of(README)) >= 5
    minutes = [re.findall(r"(\d+) processor minutes", text) for text in (README, RESULTS)]
    assert minutes[0] == minutes[1] != []


def test_data_parallelism_is_as_near_as_it_says() -> None:
    (percent,) = re.findall(r"Where data parallelism fits, it is within (\d)% of tofu's plan", README)
    rows = [
        [cell.partition(";")[0].replace(",", "").strip("*") for cell in row.split("|")[3:5]]
        for row in table_of(README)[2:]
    ]
    pairs = [(float(ours), float(data)) for ours, data in rows if not data.startswith("needs")]
    assert len(pairs) >= 4
    assert all(data <= ours * (1 + int(percent) / 100) for ours, data in pairs)
