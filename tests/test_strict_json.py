"""Strict JSON: every fault in plain words, with its line or its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.strict_json import JsonError, Value, parse_json, read_json


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty"),
        (" \n", "it is empty"),
        ('{"a": 1,\n "b": }', "it is no JSON: line 2, character 7: a value is missing"),
        ('{"a" 1}', "it is no JSON: line 1, character 6: a colon is missing after a key"),
        ("{a: 1}", "it is no JSON: line 1, character 2: a key in double quotes is missing"),
        ("[1 2]", "it is no JSON: line 1, character 4: a comma or a closing bracket is missing"),
        ("[1]\n]", "it is no JSON: line 2, character 1: there is more after the end"),
        ('["a]', "it is no JSON: line 1, character 2: a text has no end"),
        ('["a\tb"]', "it is no JSON: line 1, character 4: a text holds a control character"),
        (r'["\q"]', "it is no JSON: line 1, character 3: a text holds an escape that JSON does not have"),
        ("[" * 100_000, "it is nested too deeply"),
        ("[NaN]", "NaN is no number of JSON"),
        ("1" * 10_000, "a number has too many digits"),
        ('{"a": 1, "a": 2}', "the key 'a' is there twice"),
        (b"[\xff]", "byte 1 is not UTF-8"),
    ],
)
def test_what_is_no_json(text: str | bytes, said: str) -> None:
    with pytest.raises(JsonError) as caught:
        parse_json(text)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (lambda whole: whole["z"], "it lacks 'z'"),
        (lambda whole: whole["a"]["z"], "a lacks 'z'"),
        (lambda whole: whole["a"]["b.c"].text(), "a.b.c is a list, not a text"),
        (lambda whole: whole["a"]["b.c"].values()[1].text(), "a.b.c[1] is true or false (true), not a text"),
        (lambda whole: whole["a"]["b.c"].values()[0].integer(), 'a.b.c[0] is a text ("x"), not a whole number'),
        (lambda whole: whole["a"].text(), "a is an object, not a text"),
        (lambda whole: whole["n"].count(), "n is a number (-1), not a whole number of at least 0"),
        (lambda whole: whole["n"].number(), "n is a number (-1), not a finite number that is not negative"),
        (lambda whole: whole["f"].integer(), "f is a number (1.5), not a whole number"),
        (lambda whole: whole["h"].count(), f"h is a number ({10**58}…), not a number of at most 64 bits"),
        (lambda whole: whole["h"].number(), f"h is a number ({10**58}…), not a finite number that is not negative"),
        (lambda whole: whole["o"]["x"], "o is null, not an object"),
        (lambda whole: whole.values(), "it is an object, not a list"),
    ],
)
def test_what_stands_in_the_wrong_place(read: Callable[[Value], object], said: str) -> None:
    whole = parse_json('{"a": {"b.c": ["x", true]}, "n": -1, "f": 1.5, "o": null, "h": 1%s}' % ("0" * 400))
    with pytest.raises(JsonError) as caught:
        read(whole)
    assert str(caught.value) == said


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(JsonError, match="No such file or directory"):
        read_json(tmp_path / "none.json")


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(PLAIN)
def test_what_is_json_is_read(value: object) -> None:
    assert parse_json(json.dumps(value)).value == value
