"""The core works without features: a copy of the repository without ``planner/features``."""

from __future__ import annotations

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


def tests_of_the_core() -> list[str]:
    """Test files of the core's rooms that name no feature."""
    names = "|".join((*functions(), *(feature.name for feature in features())))
    of_features = re.compile(rf"planner\.features|all_commands|\b(?:api|planner)\.(?:{names})\b|[\"'](?:{names})\b")
    files = [file for room in ROOMS for file in sorted((ROOT / "tests" / room).rglob("test_*.py"))]
    return [str(file.relative_to(ROOT)) for file in files if not of_features.search(file.read_text(encoding="utf-8"))]


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


@pytest.mark.slow
def test_help_lists_the_core(core: Path) -> None:
    done = answer(core, "-m", "planner", "--help")
    listed = done.stdout[done.stdout.index("Commands:") :].splitlines()[1:]
    assert tuple(line.split()[0] for line in listed if line.startswith("  ") and line[2] != " ") == CORE
    assert answer(core, "-m", "planner", "prove", "plan").stderr.startswith("error: no such command 'prove'")


@pytest.mark.slow
def test_the_readme_commands_work(core: Path) -> None:
    line = "grad tests/models/resnet50.raw.onnx --loss softmax_cross_entropy --optimizer momentum --lr 0.05 --batch 8"
    for words in (
        f"{line} -o train.onnx",
        "plan train.onnx --gpus 2 --effort quick --no-models --out plan",
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
    tests = tests_of_the_core()
    assert len(tests) > 30
    done = answer(core, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *tests)
    assert done.returncode == 0, done.stdout[-4000:]
