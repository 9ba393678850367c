"""The glossary has one meaning for each word, and the code has no second one (second_meanings.toml)."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "glossary.md").read_text()
MEANINGS = Path(__file__).parent / "second_meanings.toml"
MOST_WORDS = 55


class Banned(NamedTuple):
    """A second meaning of a word; the fields are explained in the file."""

    word: str
    not_for: str
    instead: str
    pattern: str
    places: Sequence[str]
    without: Sequence[str] = ()
    still: Sequence[str] = ()

    @property
    def title(self) -> str:
        return f"{self.word}: {self.not_for}"

    def files(self) -> Iterator[str]:
        """The files in which the pattern is looked for."""
        for place in (*self.places, *self.without, *self.still):
            assert (ROOT / place).exists(), f"{self.title}: there is no {place}"
        for place in self.places:
            files = [ROOT / place] if place.endswith(".py") else sorted((ROOT / place).rglob("*.py"))
            names = (file.relative_to(ROOT).as_posix() for file in files)
            yield from (name for name in names if not name.startswith(tuple(self.without)))


BANNED = [Banned(**entry) for entry in tomllib.loads(MEANINGS.read_text())["banned"]]


def explained() -> list[str]:
    """The words of the glossary's table."""
    _, _, after = TEXT.partition("\n| word | means | elsewhere |\n")
    rows = after.partition("\n\n")[0].splitlines()[1:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert all(len(row) == 3 and row[0] and row[1] for row in cells)
    return [row[0] for row in cells]


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


def test_one_meaning_for_each_of_few_words() -> None:
    names = explained()
    assert len(names) == len(set(names))
    assert 40 <= len(names) <= MOST_WORDS


def test_what_is_banned_is_explained() -> None:
    words_of_rows = {word.partition(" (")[0] for name in explained() for word in name.split(", ")}
    assert {one.word for one in BANNED} - words_of_rows == {"node", "near", "case"}, "words that mean nothing of ours"


def test_names_are_told_apart_word_by_word() -> None:
    assert [words(name) for name in ("BoundOp", "_HTTPNode", "arena_bytes", "MOST_STEPS")] == [
        "_bound_op_",
        "_http_node_",
        "_arena_bytes_",
        "_most_steps_",
    ]


@pytest.mark.parametrize("one", BANNED, ids=lambda one: one.title)
def test_a_second_meaning_is_only_where_it_is_still_allowed(one: Banned) -> None:
    found = offending(one)
    new = {file: names for file, names in found.items() if file not in one.still}
    assert not new, f"{one.word} must not mean {one.not_for}; say {one.instead}: {new}"
    gone = sorted(set(one.still) - set(found))
    assert not gone, f"take these out of {MEANINGS.name}, they no longer offend ({one.title}): {gone}"
