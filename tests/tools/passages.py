"""Passages of ten lines or more that stand in two rooms, but for names, numbers and texts.

    python tests/tools/passages.py [--root DIR] [--lines 10] [--words]

A line of a function counts that says something: blank lines, comments, docstrings, imports and lone brackets are passed
over, and what stands in no function is a declaration. Two lines
are near-equal where they are equal once each name, number and text stands for itself no more, and keywords and marks
stay; ``--words``: where they are equal as they stand. A passage is as long as it can be made; one that more than
eight places share is too common to list. Rooms are folders of planner.
"""

from __future__ import annotations

import argparse
import ast
import io
import keyword
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_COMMON = 8
_SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


@dataclass(frozen=True, slots=True, order=True)
class Passage:
    """Near-equal lines of two files."""

    lines: int
    first: str
    """``path:line`` of where it begins."""
    second: str


def spoken(tree: ast.Module, *, everywhere: bool = False) -> set[int]:
    """Lines of functions, their docstrings and imports not; ``everywhere``: all lines but docstrings."""
    inside: set[int] = set()
    passed: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt if everywhere else ast.FunctionDef | ast.AsyncFunctionDef):
            inside.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        said = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if said or (not everywhere and isinstance(node, ast.Import | ast.ImportFrom)):
            passed.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return inside - passed


def code_lines(text: str, *, everywhere: bool = False) -> dict[int, list[tokenize.TokenInfo]]:
    """What each line consists of, by number; lines without code are not in it.

    Args:
        text: of a file.
        everywhere: not of functions alone.
    """
    counted = spoken(ast.parse(text), everywhere=everywhere)
    found: dict[int, list[tokenize.TokenInfo]] = defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _SKIPPED and token.start[0] in counted:
            for line in range(token.start[0], token.end[0] + 1):
                found[line].append(token)
    return dict(found)


def shape(tokens: list[tokenize.TokenInfo], *, words: bool) -> str:
    """A line as it is compared; empty where it says nothing."""
    if not any(token.type in (tokenize.NAME, tokenize.NUMBER, tokenize.STRING) for token in tokens):
        return ""
    if words:
        return " ".join(token.string for token in tokens)
    return " ".join(
        "T" if token.type == tokenize.STRING
        else "0" if token.type == tokenize.NUMBER
        else "n" if token.type == tokenize.NAME and not keyword.iskeyword(token.string)
        else token.string
        for token in tokens
    )  # fmt: skip


def passages(root: Path, least: int, *, words: bool = False) -> Iterator[Passage]:
    """All pairs, the files of a room among themselves not.

    Args:
        root: a checkout.
        least: lines that make a passage.
        words: names, numbers and texts must be equal, too.
    """
    files: list[tuple[Path, list[tuple[int, str]]]] = []
    for path in sorted((root / "planner").rglob("*.py")):
        stated = ((number, shape(tokens, words=words)) for number, tokens in code_lines(path.read_text()).items())
        files.append((path, [(number, one) for number, one in stated if one]))
    places: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
    for index, (_, lines) in enumerate(files):
        for start in range(len(lines) - least + 1):
            places[tuple(one for _, one in lines[start : start + least])].append((index, start))
    pairs = {
        (first, second)
        for shared in places.values()
        if 1 < len(shared) <= _COMMON
        for first in shared
        for second in shared
        if first < second and files[first[0]][0].parent != files[second[0]][0].parent
    }
    for first, second in pairs:
        if ((first[0], first[1] - 1), (second[0], second[1] - 1)) in pairs:
            continue
        length = least
        while ((first[0], first[1] + length - least + 1), (second[0], second[1] + length - least + 1)) in pairs:
            length += 1
        yield Passage(
            length, *(f"{files[at][0].relative_to(root)}:{files[at][1][line][0]}" for at, line in (first, second))
        )


def main() -> None:
    """Prints the pairs, the longest first."""
    parser = argparse.ArgumentParser(description="Passages that stand in two rooms.")
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--lines", type=int, default=10)
    parser.add_argument("--words", action="store_true", help="names, numbers and texts must be equal, too")
    chosen = parser.parse_args()
    found = sorted(passages(chosen.root, chosen.lines, words=chosen.words), reverse=True)
    for passage in found:
        print(f"{passage.lines:4} {passage.first}  {passage.second}")
    print(f"{len(found)} pairs of at least {chosen.lines} lines")


if __name__ == "__main__":
    main()
