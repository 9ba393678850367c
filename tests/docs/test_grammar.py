"""The grammars at the heads of modules have the forms of the code."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

from planner.algebra import tiling
from planner.algebra.tiling import Partial, Placement, Reducer, Tiling, parse_placement
from planner.artifacts import program
from planner.graph.core import model

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"
PROGRAM = [
    record for record in vars(program).values() if inspect.isclass(record) and record.__module__ == program.__name__
]
FORMS = {model: (model.Tensor, model.Op, model.StatePair), program: PROGRAM}
"""By module the classes of which its grammar has every field."""


def rules(module: ModuleType) -> dict[str, str]:
    """The right-hand sides of a module's grammar, by what they define."""
    sides: dict[str, str] = {}
    for name, right in re.findall(r"^    (\w+) *::= (.*)$", module.__doc__ or "", re.MULTILINE):
        sides[name] = right
    return sides


@pytest.mark.parametrize("module", FORMS)
def test_a_grammar_has_the_fields_of_the_code(module: ModuleType) -> None:
    grammar = {
        form
        for name, right in rules(module).items()
        for word in re.findall(r"\w+", f"{name} {right}")
        for form in (word, word.rstrip("s"))
    }
    assert len(grammar) > 10
    for record in FORMS[module]:
        assert is_dataclass(record)
        for field in fields(record):
            words = {field.name, field.name.rpartition("_")[2].rstrip("s")}
            assert not words.isdisjoint(grammar), f"{record.__name__}.{field.name} is not there"


def placements() -> Iterator[tuple[str, Placement]]:
    """Every form of a placement that the grammar has, with numbers for what it says by words, and as it is read."""
    numbers = {"dim": "1", "block": "4", "nest": "2", "group": "1"}
    for form in rules(tiling)["placement"].split("|"):
        text = re.sub(r"\b[a-z]+", lambda word: numbers[word[0]], form.strip().partition("  ")[0])
        yield text, parse_placement(text)[0]


def test_the_grammar_has_every_placement_and_no_other() -> None:
    forms = dict(placements())
    assert [str(placement) for placement in forms.values()] == list(forms)
    assert {type(placement) for placement in forms.values()} == set(get_args(Placement))
    reducers = {placement.reducer for placement in forms.values() if isinstance(placement, Partial)}
    assert reducers == set(Reducer)


def test_texts_of_tilings_on_the_page_can_be_read() -> None:
    rows = (line.split("|")[1] for line in ARCHITECTURE.read_text().splitlines() if line.startswith("| `"))
    texts = [text for row in rows for text in re.findall(r"`([SRPO][^`]*/[^`]*)`", row)]
    assert len(texts) >= 6
    for text in texts:
        ends = [part.rpartition("/")[2] for part in text.split()]
        ways = tuple(int(end) if end.isdigit() else end.count(":") + 1 for end in ends)
        assert str(Tiling.parse(text, ways)) == text
