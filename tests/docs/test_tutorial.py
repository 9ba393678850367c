"""The tutorial, executed: its blocks one after the other, in an empty folder."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest

from planner.planning.objective import LITERATURE
from typed_lines import typing_environment

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "tutorial.md").read_text()
PYTHON_PAGE = (ROOT / "docs" / "python.md").read_text()


class Block(NamedTuple):
    """A fenced block of the page."""

    kind: str
    """``sh`` and ``python`` are executed; ``text`` is part of what the block before printed."""
    text: str


BLOCKS = [Block(*found) for found in re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)]

IN_PYTHON = Block(
    "python",
    textwrap.dedent(re.search(r"^(?:    .*\n|\n)+", PYTHON_PAGE[PYTHON_PAGE.index("    import planner") :])[0]),
)
"""What the page of the functions begins with; of the tutorial's model."""


def executed(block: Block, folder: Path, environment: dict[str, str]) -> str:
    """What a block prints."""
    command = ["bash", "-euo", "pipefail", "-c"] if block.kind == "sh" else [sys.executable, "-c"]
    done = subprocess.run(
        [*command, block.text],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300,
    )
    assert done.returncode == 0, f"{block.text}\n{done.stdout}"
    return done.stdout


@pytest.mark.slow
def test_every_block_does_what_the_page_says(tmp_path: Path) -> None:
    environment = typing_environment(tmp_path / "bin")
    folder = tmp_path / "empty"
    folder.mkdir()
    printed = ""
    for block in BLOCKS:
        if block.kind == "text":
            for line in block.text.splitlines():
                assert line in re.sub(r" +", " ", printed), f"{line!r} is not printed any more"
        else:
            printed = executed(block, folder, environment)
    assert "1 input has no static shape" in printed, "the last block ends in an error that it catches"
    made = {path.name for path in folder.iterdir()}
    assert made >= {"mlp.train.onnx", "plan", "pinned", "plan2", "plan-again", "checkpoints", "mlp.trained.onnx"}
    assert "never" not in made
    shutil.rmtree(folder / "pinned")
    executed(IN_PYTHON, folder, environment)


def test_as_many_strategies_are_compared_as_the_page_says() -> None:
    (said,) = re.findall(r"data parallelism and (\w+) other strategies", TEXT)
    assert "data" in LITERATURE
    assert said == {18: "eighteen", 19: "nineteen", 20: "twenty"}[len(LITERATURE) - 1]


def test_the_page_goes_the_whole_way() -> None:
    assert {block.kind for block in BLOCKS} == {"sh", "python", "text"}
    commands = set(
        re.findall(r"^tofu (\w+)", "".join(block.text for block in BLOCKS if block.kind == "sh"), re.MULTILINE)
    )
    assert commands == {"grad", "plan", "explain", "compare", "run"}
    assert TEXT.count("```") == 2 * len(BLOCKS)
