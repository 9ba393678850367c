"""The command line as a whole: help, version, what there is no command for; and what it imports."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import COMMANDS, ROOT, Door, assert_refused
from planner.commands import main as cli


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["plan", "--help"], ["run", "-h"], ["nonsense"]])
def test_help_is_light(arguments: list[str]) -> None:
    heavy = ("onnx", "onnxruntime", "numpy", "rich", "yaml", "google.protobuf")
    program = f"""
import sys
from planner.commands import main as cli
code = cli.main({arguments!r})
print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, text=True, capture_output=True, timeout=300)
    assert done.stderr.endswith("[]\n"), done.stderr


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("plan nofile.onnx --gpus 2", "nofile.onnx: no such file"),
        ("run nodir", "nodir holds no plan"),
        ("explain ./nodir", "nodir holds no plan"),
        ("report nodir -o page.html", "nodir holds no plan"),
        ("report nodir", "nodir holds no plan"),
    ],
)
def test_what_is_not_there_is_refused_early(line: str, says: str, tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "planner", *line.split()]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, timeout=300)
    lines = done.stderr.splitlines()
    imported = [text.rpartition("|")[2].strip() for text in lines if text.startswith("import time:")]
    said = [text for text in lines if not text.startswith("import time:")]
    assert (done.returncode, said[0]) == (2, f"error: {says}")
    assert len(imported) <= 160
    assert "planner.commands.main" in imported
    assert not {"onnx", "onnxruntime", "rich", "numpy"} & set(imported)


def test_imports_only_the_layer_below() -> None:
    files = [ROOT / "cli.py", *sorted((ROOT / "planner" / "commands").glob("*.py"))]
    imported = set()
    for node in [node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "planner":
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names if alias.name.split(".")[0] == "planner"}
    rooms = "__version__ api commands errors feature installed options".split()
    rooms += "printable printing records results stop units".split()
    single = {"artifacts.place", "graph.reading.named_file", "runtime.run_report"}
    beside = {name for name in imported if name.removeprefix("planner.").split(".")[0] not in rooms}
    assert {name for name in beside if not name.removeprefix("planner.").startswith(tuple(single))} == set()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("plaan m.onnx", "no such command 'plaan'\nhint: did you mean 'plan'?"),
        ("plan m.onnx --workers 2", "no such option '--workers'\nhint: write --gpus K"),
        ("plan m.onnx --gpus 2 --batch 8", "hint: sizes of the model's own dims are written --dim batch=N"),
        ("grad m.onnx --batch-size 8", "no such option '--batch-size'\nhint: write --batch N"),
        ("run plan --gpus 2", "no such option '--gpus'\nhint: a plan says for how many"),
        ("zzz", "no such command 'zzz'\nhint: see tofu --help"),
    ],
)
def test_bad_usage(line: str, says: str, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    assert_refused(line, says, door, capsys)


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Usage: tofu ")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert f"Examples:\n    tofu {command} " in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    out = capsys.readouterr().out
    numbers = r"tofu [0-9.]+\nPython 3\.[0-9.]+\nonnx 1\.[0-9.]+\nonnxruntime(-gpu)? 1\.31\.[0-9]+\n"
    assert re.fullmatch(numbers + r"(cupy-cuda13x|CuPy:) .+\n", out)
    script = [sys.executable, "cli.py", "--version"]
    assert subprocess.run(script, cwd=ROOT, check=True, text=True, capture_output=True, timeout=300).stdout == out
