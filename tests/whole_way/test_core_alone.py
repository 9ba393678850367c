"""The core works without features: a copy of the repository without ``planner/features``."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import ROOT
from planner.feature import features, functions

CORE = ("build", "check", "explain", "grad", "plan", "run")
ROOMS = ("algebra", "api", "commands", "gate", "partition", "planning", "tdl")


def core_test_files() -> list[str]:
    """Test files of the core's rooms that name no feature."""
    names = "|".join((*functions(), *(feature.name for feature in features())))
    of_features = re.compile(
        rf"planner\.features|all_commands|COMMANDS|\b(?:api|planner)\.(?:{names})\b|[\"'](?:{names})\b"
    )
    files = [file for room in ROOMS for file in sorted((ROOT / "tests" / room).rglob("test_*.py"))]
    return [str(file.relative_to(ROOT)) for file in files if not of_features.search(file.read_text(encoding="utf-8"))]


TOY = {
    "__init__.py": '''"""``tofu toy``: twice a number."""

from planner.feature import Feature, Output

FEATURE = Feature(
    __name__, functions=("toy",), outputs=(Output("toy", "tofu toy --json", "run:ToyResult", "run:print_toy"),)
)
''',
    "run.py": '''"""Twice a number."""

from dataclasses import dataclass
from typing import ClassVar, TextIO


@dataclass(frozen=True)
class ToyResult:
    """A number, doubled."""

    schema_version: ClassVar = 1
    doubled: int


def toy(number: int) -> ToyResult:
    """Doubles a number."""
    return ToyResult(2 * number)


def print_toy(result: ToyResult, file: TextIO) -> None:
    """Prints it for people."""
    print(f"doubled  {result.doubled}", file=file)
''',
    "command.py": '''"""``tofu toy``."""

import click

from planner.commands.exit_codes import EXIT_DONE
from planner.commands.options import JSON
from planner.commands.show import show


@click.command(short_help="Twice a number.")
@click.argument("number", type=int)
@JSON
def toy(number: int, json_wanted: bool) -> int:
    """Print twice NUMBER."""
    from planner import api

    show(lambda _line: api.toy(number), json_wanted)
    return EXIT_DONE
''',
}
"""A whole command, in the files of one folder."""


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("core") / "tofu"
    left_out = shutil.ignore_patterns("features", "__pycache__", ".*", "build", "*.egg-info", "docs", "bench")
    shutil.copytree(ROOT, folder, symlinks=True, ignore=left_out)
    assert not (folder / "planner" / "features").exists()
    return folder


def answer(core: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(core)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=core, env=environment, text=True, capture_output=True, timeout=900
    )


def test_features_are_found_in_an_archive(tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "tofu"), "zip", ROOT, "planner")
    code = "from planner.feature import features; print(*(feature.name for feature in features()))"
    environment = {**os.environ, "PYTHONPATH": archive}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, text=True, capture_output=True)
    assert done.stdout.split() == [feature.name for feature in features()], done.stderr


def test_a_folder_that_declares_no_feature_is_named(tmp_path: Path) -> None:
    for name in ("__init__.py", "feature.py"):
        (tmp_path / "planner").mkdir(exist_ok=True)
        shutil.copy(ROOT / "planner" / name, tmp_path / "planner" / name)
    (tmp_path / "planner" / "features" / "empty").mkdir(parents=True)
    (tmp_path / "planner" / "features" / "__init__.py").touch()
    (tmp_path / "planner" / "features" / "empty" / "__init__.py").touch()
    done = answer(tmp_path, "-c", "from planner.feature import features; features()")
    assert "ImportError: planner.features.empty declares no FEATURE" in done.stderr


@pytest.mark.slow
def test_help_lists_the_core(core: Path) -> None:
    done = answer(core, "-m", "planner", "--help")
    listed = done.stdout[done.stdout.index("Make a training graph:") :].splitlines()
    names = [line.split()[0] for line in listed if line.startswith("  ") and line[2] != " "]
    assert sorted(names) == sorted(CORE)
    assert answer(core, "-m", "planner", "prove", "plan").stderr.startswith("error: no such command 'prove'")


@pytest.mark.slow
def test_the_readme_commands_work(core: Path) -> None:
    line = "grad tests/models/resnet50.raw.onnx --loss softmax_cross_entropy --optimizer momentum --lr 0.05 --batch 8"
    for words in (
        f"{line} -o train.onnx",
        "plan train.onnx --gpus 2 --effort quick --no-models -o plan",
        "build plan",
        "explain plan",
        "run plan --steps 1 --verify",
        "check train.onnx --gpus 2 --baseline costs.json --update",
    ):
        done = answer(core, "-m", "planner", *words.split())
        assert done.returncode == 0, done.stderr
    assert (
        "no such file" in answer(core, "-m", "planner", *"check alexnet --gpus 2 --baseline costs.json".split()).stderr
    )


@pytest.mark.slow
def test_tests_of_the_core_pass(core: Path) -> None:
    tests = core_test_files()
    assert len(tests) >= 20
    done = answer(core, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *tests)
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.slow
def test_a_command_is_added_by_one_folder(core: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(core, tmp_path / "tofu", symlinks=True)
    folder = copy / "planner" / "features" / "toy"
    folder.mkdir(parents=True)
    for name, text in TOY.items():
        (folder / name).write_text(text)
    assert "toy  Twice a number." in answer(copy, "-m", "planner", "--help").stdout
    assert answer(copy, "-m", "planner", "toy", "3").stdout == "doubled  6\n"
    assert json.loads(answer(copy, "-m", "planner", "toy", "3", "--json").stdout) == {"schema_version": 1, "doubled": 6}
    assert answer(copy, "-c", "import planner; print(planner.toy(4).doubled)").stdout == "8\n"
