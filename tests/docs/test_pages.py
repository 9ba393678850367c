"""Pages are short, name tests that there are, and link to what there is."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import prose

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ROOTS = (ROOT, ROOT / "planner" / "search")
INVARIANTS = "## Invariants\n"
USERS = (
    "install first-plan compare-tools troubleshooting glossary trust export-from-pytorch training-graphs plan machines"
    " read-a-plan run verify gpu-results export ci operators python"
).split()
"""Pages for users: no source path and no name of a test."""
INTERNALS = sorted(name.removesuffix(".md") for name in prose.INTERNALS)
PROMISING = ("architecture", "search", "papers")
"""Pages with invariants, each held by a test."""
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_PLACE = re.compile(r"`((?:planner|opdefs|configs|docs|tests|bench)(?:/[\w.]+)*)`")
_NAMED_IN = re.compile(r"`(\w+)` (?:in|of) `([\w/]+\.py)`")


@cache
def anchors(file: Path) -> frozenset[str]:
    """The names by which the sections of a page are linked to, as GitHub makes them of titles."""
    titles = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles)


@cache
def functions_of(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_there_are_these_pages_and_no_others() -> None:
    assert {file.stem for file in DOCS.glob("*.md")} == {*USERS, *INTERNALS}


def test_links_lead_somewhere() -> None:
    files = [ROOT / "README.md", *(DOCS / f"{page}.md" for page in (*USERS, *INTERNALS))]
    files += (ROOT / "bench" / "results").glob("*.md")
    links = [(file, link) for file in files for link in _LINK.findall(file.read_text())]
    assert len(links) > 50
    for file, link in links:
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = file.parent / path if path else file
        assert target.exists(), f"{file.name}: {link} leads nowhere"
        assert not anchor or anchor in anchors(target), f"{file.name}: {link} names no section"


def test_where_to_begin_names_files_that_there_are() -> None:
    _, _, table = (DOCS / "architecture.md").read_text().partition("| to change |")
    places, named = _PLACE.findall(table), _NAMED_IN.findall(table)
    assert len(places) > 60
    assert len(named) > 4
    assert [place for place in places if not (ROOT / place).exists()] == []
    assert [pair for pair in named if not re.search(rf"\b{pair[0]}\b", (ROOT / pair[1]).read_text())] == []


@pytest.mark.parametrize("page", INTERNALS)
def test_paths_of_the_internals_are_there(page: str) -> None:
    text = (DOCS / f"{page}.md").read_text()
    # A path of the search may leave out its beginning: `moves/fusion.py`.
    paths = {*_PLACE.findall(text), *re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", text)}
    assert len(paths) > 3
    assert [path for path in sorted(paths) if not any((root / path).exists() for root in ROOTS)] == []


@pytest.mark.parametrize("page", PROMISING)
def test_each_rule_names_a_test_that_there_is(page: str) -> None:
    _, _, after = (DOCS / f"{page}.md").read_text().partition(INVARIANTS)
    rules = [line for line in after.partition("\n## ")[0].splitlines() if line.startswith("- ")]
    assert len(rules) >= 3
    for rule in rules:
        found = _TEST.search(rule)
        assert found is not None, f"names no test: {rule}"
        assert found[2] in functions_of(found[1]), f"there is no {found[0]}"
