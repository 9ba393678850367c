"""What a build takes, and how its parts are spelt; `make test-wheel` builds and installs it."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from pathlib import Path

import pytest

import planner
import planner.commands

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FOLDERS = ("planner", "opdefs", "configs", "bench", "tests", "docs")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OLD = re.compile(r"^\s*(?:>>> )?(?:import (?:cli|configs|opdefs)\b|from (?:cli|configs|opdefs)[. ])", re.MULTILINE)


def test_only_planner_is_imported() -> None:
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*") if file.suffix in (".py", ".md")]
    assert len(files) > 900
    found = {file: OLD.findall(file.read_text(encoding="utf-8")) for file in [*files, ROOT / "README.md"]}
    assert {file.name: lines for file, lines in found.items() if lines} == {}


def test_folders_beside_planner_are_its_packages() -> None:
    from planner import configs, opdefs

    for module, folder in ((configs, "configs"), (opdefs, "opdefs")):
        assert module.__name__ == f"planner.{folder}"
        assert Path(str(module.__file__)).resolve() == ROOT / folder / "__init__.py"


def test_every_file_of_planner_is_taken_into_a_build() -> None:
    files = [file for file in (ROOT / "planner").rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    modules = [file for file in files if file.suffix == ".py"]
    assert len(modules) > 400
    assert [file for file in modules if not (file.parent / "__init__.py").is_file()] == []
    data = {file for pattern in PROJECT["tool"]["setuptools"]["package-data"]["planner"] for file in matches(pattern)}
    assert set(files) - set(modules) == data


def matches(pattern: str) -> list[Path]:
    """Files of ``planner`` that a pattern of package data names."""
    return sorted((ROOT / "planner").glob(pattern))


def test_the_version_is_said_once() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "planner.__version__"}
    assert re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", planner.__version__)


def test_no_page_installs_a_project_of_another() -> None:
    assert len(PAGES) > 20
    texts = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert re.findall(r"""pip install ["']?tofu(?:\[[^\n]*|["']?$)""", texts, re.MULTILINE) == []
    wheels = set(re.findall(r"[\w-]+-[0-9.]+-py3-none-any\.whl", texts))
    assert wheels == {f"{PROJECT['project']['name'].replace('-', '_')}-{planner.__version__}-py3-none-any.whl"}


def test_windows_is_told_of_wsl(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit) as ended:
        importlib.reload(planner.commands)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("error: tofu does not run on Windows itself\nhint: ")
