"""The pages of grammar have the forms of the code, and their examples give what they say."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args

import pytest

from planner.algebra.tiling import Partial, Placement, Reducer, Tiling, parse_placement
from planner.artifacts import program
from planner.graph.model import Op, StatePair, Tensor
from planner.tdl.expr import Index, Value

DOCS = Path(__file__).parents[2] / "docs"
PROGRAM = [one for one in vars(program).values() if inspect.isclass(one) and one.__module__ == program.__name__]
FORMS = {
    "graph": {*get_args(Index), *get_args(Value), Tensor, StatePair},
    "decision": {*get_args(Placement)},
    "program": {*PROGRAM},
}
"""By page the classes that its column "in code" must name."""
STATED = {"graph": (Tensor, Op, StatePair), "decision": (), "program": PROGRAM}
"""By page the classes of which its grammar has every field."""


def text_of(page: str) -> str:
    return (DOCS / f"grammar-{page}.md").read_text()


def rules(page: str) -> dict[str, str]:
    """The right-hand sides of a page's grammar, by what they define."""
    found: dict[str, str] = {}
    last = ""
    block = re.findall(r"^    (.*)$", text_of(page).partition("\n| form |")[0], re.MULTILINE)
    for line in block:
        name, is_rule, right = line.partition("::=")
        last = name.strip() if is_rule else last
        found[last] = found.get(last, "") + (right if is_rule else line)
    return found


@pytest.mark.parametrize("page", FORMS)
def test_a_page_has_the_forms_of_the_code(page: str) -> None:
    column = " ".join(line.rsplit("|", 2)[1] for line in text_of(page).splitlines() if line.startswith("| "))
    named = set(re.findall(r"`(\w+)", column))
    missing = {one.__name__ for one in FORMS[page]} - named
    assert not missing, f"grammar-{page}.md says nothing of {missing}"
    grammar = {
        form
        for name, right in rules(page).items()
        for word in re.findall(r"\w+", f"{name} {right}")
        for form in (word, word.rstrip("s"))
    }
    for one in STATED[page]:
        assert is_dataclass(one)
        for field in fields(one):
            words = {field.name, field.name.rpartition("_")[2].rstrip("s")}
            assert not words.isdisjoint(grammar), f"{one.__name__}.{field.name} is not there"


@pytest.mark.parametrize("page", FORMS)
def test_the_example_of_a_page_gives_what_it_says(page: str) -> None:
    found = doctest.testfile(str(DOCS / f"grammar-{page}.md"), module_relative=False)
    assert found.attempted > 5
    assert found.failed == 0


def placements() -> Iterator[tuple[str, Placement]]:
    """Every form of a placement that the grammar has, with numbers for what it says by words, and as it is read."""
    numbers = {"dim": "1", "block": "4", "nest": "2", "group": "1"}
    for form in rules("decision")["placement"].split("|"):
        text = re.sub(r"\b[a-z]+", lambda word: numbers[word[0]], form.strip().partition("  ")[0])
        yield text, parse_placement(text)[0]


def test_the_grammar_has_every_placement_and_no_other() -> None:
    forms = dict(placements())
    assert [str(placement) for placement in forms.values()] == list(forms)
    assert {type(placement) for placement in forms.values()} == set(get_args(Placement))
    reducers = {placement.reducer for placement in forms.values() if isinstance(placement, Partial)}
    assert reducers == set(Reducer)


def test_texts_of_tilings_on_the_page_can_be_read() -> None:
    rows = (line.split("|")[1] for line in text_of("decision").splitlines() if line.startswith("| `"))
    texts = [text for row in rows for text in re.findall(r"`([SRPO][^`]*)`", row)]
    assert len(texts) >= 6
    for text in texts:
        ends = [part.rpartition("/")[2] for part in text.split()]
        ways = tuple(int(end) if end.isdigit() else end.count(":") + 1 for end in ends)
        assert str(Tiling.parse(text, ways)) == text
