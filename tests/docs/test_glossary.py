"""The glossary has one meaning for each word, and the code has no second one but where the glossary still allows it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "glossary.md").read_text()
MOST_WORDS = 50


class Banned(NamedTuple):
    """A second meaning of a word."""

    word: str
    not_for: str
    instead: str
    pattern: str
    """Of identifiers as ``words`` writes them."""
    where: str
    """Folders and files, each between backquotes; those with an exclamation mark are left out."""

    @property
    def title(self) -> str:
        return f"{self.word}: {self.not_for}"

    def files(self) -> Iterator[str]:
        """The files in which the pattern is looked for."""
        places = re.findall(r"`(!?)([^`]+)`", self.where)
        out = tuple(place for mark, place in places if mark)
        for mark, place in places:
            assert (ROOT / place).exists(), f"{self.title}: there is no {place}"
            if not mark:
                found = [ROOT / place] if place.endswith(".py") else sorted((ROOT / place).rglob("*.py"))
                names = (file.relative_to(ROOT).as_posix() for file in found)
                yield from (name for name in names if not name.startswith(out))


def rows(head: str) -> list[list[str]]:
    """The cells of the table that begins with this line."""
    _, _, after = TEXT.partition(f"\n{head}\n")
    assert after, f"there is no table {head}"
    lines = after.splitlines()[1:]
    table = lines[: next(number for number, line in enumerate(lines) if not line.startswith("|"))]
    return [
        [cell.replace(r"\|", "|").strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))] for line in table
    ]


def banned() -> list[Banned]:
    found = []
    for word, not_for, instead, pattern, where in rows(
        "| word | must not mean | say instead | pattern | looked for in |"
    ):
        found.append(Banned(word, not_for, instead, pattern.strip("`"), where))
    return found


def allowed() -> dict[str, set[str]]:
    """By second meaning the files that may still have it."""
    _, _, after = TEXT.partition("## Files that may still offend\n")
    lines = [line for line in after.splitlines() if line.startswith("- ")]
    return {line[2:].partition(" — ")[0]: set(re.findall(r"`([^`]+)`", line)) for line in lines}


def words(identifier: str) -> str:
    """The words of an identifier, in small letters, with underscores before, between and after them.

    >>> words("BoundOp")
    '_bound_op_'
    """
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", identifier)
    return f"_{parted.strip('_').lower()}_"


@cache
def identifiers(file: str) -> frozenset[str]:
    """The names of a file's classes, functions, arguments and attributes."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        match node:
            case ast.ClassDef(name=name, body=body):
                found.add(name)
                found |= {
                    one.target.id for one in body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
                }
            case ast.FunctionDef(name=name) | ast.arg(arg=name) | ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
    return frozenset(found)


def offending(one: Banned) -> dict[str, list[str]]:
    """By file, the identifiers that have the second meaning."""
    pattern = re.compile(one.pattern)
    found = {file: sorted(name for name in identifiers(file) if pattern.search(words(name))) for file in one.files()}
    return {file: names for file, names in found.items() if names}


def test_one_meaning_for_each_of_at_most_fifty_words() -> None:
    table = rows("| word | means |")
    assert all(len(row) == 2 and all(row) for row in table)
    names = [row[0] for row in table]
    assert len(names) == len(set(names))
    assert 40 <= len(names) <= MOST_WORDS


def test_what_is_banned_is_explained() -> None:
    explained = {row[0] for row in rows("| word | means |")}
    assert {one.word for one in banned()} - explained == {"node", "near", "case"}, "words that mean nothing of ours"


def test_names_are_told_apart_word_by_word() -> None:
    assert [words(name) for name in ("BoundOp", "_HTTPNode", "arena_bytes", "MOST_STEPS")] == [
        "_bound_op_",
        "_http_node_",
        "_arena_bytes_",
        "_most_steps_",
    ]


@pytest.mark.parametrize("one", banned(), ids=lambda one: one.title)
def test_a_second_meaning_is_only_where_it_is_still_allowed(one: Banned) -> None:
    found = offending(one)
    may = allowed().get(one.title, set())
    new = {file: names for file, names in found.items() if file not in may}
    assert not new, f"{one.word} must not mean {one.not_for}; say {one.instead}: {new}"
    gone = sorted(may - set(found))
    assert not gone, f"take these out of docs/glossary.md, they no longer offend ({one.title}): {gone}"


def test_no_list_is_left_of_what_is_not_banned() -> None:
    assert set(allowed()) <= {one.title for one in banned()}
