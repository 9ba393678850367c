"""The page of the first plan, executed: its blocks one after the other, in an empty folder.

`make test-pytorch` executes all of them. Here, without PyTorch, those that need it are left out, and ``mlp.onnx`` is
the file that the first of them wrote with PyTorch 2.13 (tests/models/first_plan.onnx, without metadata of ops).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from planner.planning.objective import LITERATURE
from pytorch_page import blocks
from typed_lines import typing_environment

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "first-plan.md"
TEXT = PAGE.read_text()
OF_TORCH = re.compile(r"\b(?:torch|load_into)\b")
BLOCKS = blocks(PAGE)


def first_example(page: Path) -> str:
    """The first Python block of a page, indented or fenced."""
    fenced, indented = r"^```python\n(.*?)^```$", r"^(    import planner\n(?:    [^\n]*\n|\n)+)"
    found = re.search(f"{fenced}|{indented}", page.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1] or textwrap.dedent(found[2])


def executed(kind: str, text: str, folder: Path, environment: dict[str, str]) -> str:
    """What a block prints."""
    command = ["bash", "-euo", "pipefail", "-c"] if kind == "sh" else [sys.executable, "-c"]
    done = subprocess.run(
        [*command, text], cwd=folder, env=environment, text=True, capture_output=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_every_block_does_what_the_page_says(tmp_path: Path) -> None:
    environment = typing_environment(tmp_path / "bin")
    folder = tmp_path / "empty"
    folder.mkdir()
    shutil.copy(ROOT / "tests" / "models" / "first_plan.onnx", folder / "mlp.onnx")
    printed = ""
    for block in BLOCKS:
        if block.kind == "text":
            for line in block.text.splitlines():
                assert line in re.sub(r" +", " ", printed), f"{line!r} is not printed any more"
        elif block.kind == "sh" or not OF_TORCH.search(block.text):
            printed = executed(*block[:2], folder, environment)
    written = {path.name for path in folder.iterdir()}
    assert written >= {"mlp.train.onnx", "plan", "pinned", "plan2", "checkpoints", "trained.safetensors"}
    assert written >= {"run.json", "costs.json", "placements.py", "lenet.onnx"}


@pytest.mark.slow
def test_the_example_of_the_functions_is_of_the_same_model(tmp_path: Path) -> None:
    environment = typing_environment(tmp_path / "bin")
    shutil.copy(ROOT / "tests" / "models" / "first_plan.onnx", tmp_path / "mlp.onnx")
    executed("python", first_example(ROOT / "docs" / "python.md"), tmp_path, environment)


def test_as_many_schemes_are_compared_as_the_page_says() -> None:
    (said,) = re.findall(r"data parallelism and (\w+) other schemes", TEXT)
    assert "data" in LITERATURE
    assert said == {18: "eighteen", 19: "nineteen", 20: "twenty"}[len(LITERATURE) - 1]


def test_the_page_goes_from_pytorch_and_back_and_shows_the_commands() -> None:
    assert {block.kind for block in BLOCKS} == {"sh", "python", "text"}
    assert TEXT.count("```") == 2 * len(BLOCKS)
    first, *_, last = [block for block in BLOCKS if block.kind == "python"]
    assert "torch.onnx.export" in first.text
    assert "torch.optim" in last.text
    typed = set(re.findall(r"^tofu (\w+)", "".join(block.text for block in BLOCKS), re.MULTILINE))
    assert typed >= set("grad plan explain compare report run diff fit check export ops zoo".split())
