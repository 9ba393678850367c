"""The pages of ``docs/reference`` are those that the code gives."""

from __future__ import annotations

import pytest

import reference
import schemas

STALE = "`make schemas` writes them"


def test_options() -> None:
    assert (reference.FOLDER / "options.md").read_text() == reference.options(), STALE


@pytest.mark.slow
def test_operators() -> None:
    assert (reference.FOLDER / "operators.md").read_text() == reference.operators(), STALE


def test_topologies() -> None:
    assert (reference.FOLDER / "topologies.md").read_text() == reference.topologies(), STALE


def test_json() -> None:
    text = reference.json_members(schemas.texts())
    assert (reference.FOLDER / "json.md").read_text() == text, STALE
    titles = [line.lower() for line in text.splitlines() if line.startswith("#")]
    names = [title.lstrip("# ") for title in titles]
    assert len(set(names)) == len(names), "a link to one of them is ambiguous"


def test_every_command_stands_there() -> None:
    text = reference.options()
    for command in ("plan", "run", "checkpoint show", "schema"):
        assert f"\n## tofu {command}\n" in text


def test_there_are_no_other_pages() -> None:
    pages = {"options.md", "operators.md", "topologies.md", "json.md"}
    assert {file.name for file in reference.FOLDER.iterdir()} == pages
