"""Docstrings of planner and opdefs whose first sentence has no noun as its subject, or a pronoun before its noun.

    python tests/tools/docstrings.py [FILE ...]          counts by kind, the worst words first
    python tests/tools/docstrings.py -v [FILE ...]       every place

A first sentence ends at a full stop, a colon or a semicolon. It may begin with a noun and its articles and adjectives
("The bytes of a region"), or, in a docstring of a function or class, with a verb, whose subject is the thing itself
("Reads a plan"). "Whether" and "True if" begin the docstring of a condition. A question word, a pronoun, or a
preposition first ("What moves", "One of them", "Of a bucket: its number") leaves the reader without a subject. So does
a pronoun that stands second, before any noun ("Gives those", "The one", "Reads what").
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PRONOUNS: Final = frozenset("it its nothing ones others something that their theirs them they".split())
DETERMINERS: Final = frozenset({"one", "those"})
"""Pronouns before a preposition or a clause ("One of them"), and not before a noun ("One fetch")."""
QUESTIONS: Final = frozenset("how what whatever when where which who whom whose why".split())
PREPOSITIONS: Final = frozenset(
    "about after along among around as at before behind below beside besides between beyond but by for from in inside"
    " of on out over since so to under until up with within without".split()
)
NO_NOUN: Final = (PRONOUNS - {"that"}) | {"what", "whatever"}
"""Second words that no noun precedes; "that" and "which" follow theirs: "Ops that read a tensor"."""
CLAUSES: Final = PREPOSITIONS | QUESTIONS | {"", "more", "that"}
"""Words behind a pronoun that stands for a noun."""
_SENTENCE_END = re.compile(r"(?<=[\w`)\]\"'])[.:;!?](?=\s|$)")
_WORD: Final[re.Pattern[str]] = re.compile(r"``.*?``|[\w'-]+")


class Docstring(NamedTuple):
    """A docstring, and its place."""

    place: str
    name: str
    sentence: str
    """The first one."""

    @property
    def fault(self) -> str:
        """The word in the subject's place; empty if nothing is wrong."""
        first, second, third = (*(word.lower() for word in _WORD.findall(self.sentence)[:3]), "", "", "")[:3]
        if first in PRONOUNS | QUESTIONS | PREPOSITIONS or (first in DETERMINERS and second in CLAUSES):
            return first
        return second if second in NO_NOUN or (second in DETERMINERS and third in CLAUSES) else ""


def first_sentence(text: str) -> str:
    """The first sentence of a docstring, in one line."""
    line = " ".join(text.split("\n\n", 1)[0].split())
    return line[: end.start()] if (end := _SENTENCE_END.search(line)) else line


def docstrings(module: Path) -> Iterator[Docstring]:
    """The docstrings of a module, its classes, functions, and fields."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _of(node, module)
            yield from _of_fields(node, module)


def _of(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, module: Path) -> Iterator[Docstring]:
    text = ast.get_docstring(node)
    if text:
        name, line = ("", 1) if isinstance(node, ast.Module) else (node.name, node.lineno)
        yield Docstring(f"{module.relative_to(ROOT)}:{line}", name, first_sentence(text))


def _of_fields(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, module: Path
) -> Iterator[Docstring]:
    for field, text in zip(node.body, node.body[1:], strict=False):
        if not isinstance(field, ast.Assign | ast.AnnAssign) or not isinstance(text, ast.Expr):
            continue
        if isinstance(text.value, ast.Constant) and isinstance(text.value.value, str):
            target = field.target if isinstance(field, ast.AnnAssign) else field.targets[0]
            place = f"{module.relative_to(ROOT)}:{text.lineno}"
            yield Docstring(place, ast.unparse(target), first_sentence(text.value.value))


def modules() -> list[Path]:
    """The modules of planner and opdefs; links, which stand for folders at the top, are not followed."""
    return [*sorted((ROOT / "planner").rglob("*.py")), *sorted((ROOT / "opdefs").rglob("*.py"))]


def faults(files: Iterable[Path]) -> list[Docstring]:
    """The docstrings whose first sentence has no subject."""
    return [docstring for file in files for docstring in docstrings(file) if docstring.fault]


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("-v", action="store_true", dest="is_verbose")
    arguments = parser.parse_args()
    places = faults([file.resolve() for file in arguments.files] or modules())
    if arguments.is_verbose:
        for docstring in places:
            print(f"{docstring.place}: {docstring.name}: {docstring.sentence}")
    for word, count in Counter(docstring.fault for docstring in places).most_common():
        print(f"{count:6,} {word}")
    print(f"{len(places):6,} docstrings without a subject")


if __name__ == "__main__":
    main()
