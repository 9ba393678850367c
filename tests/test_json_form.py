"""Forms of JSON values, and what is said of those that do not fit."""

from __future__ import annotations

from typing import Any

import pytest

from planner.json_form import Row, fault_in

TABLE = {"name": str, "sizes": [int], "gap": (None, float), "pairs": [Row((str, str))], "by": {str: {"n": int}}}
RIGHT: dict[str, Any] = {"name": "a", "sizes": [1, 2], "gap": None, "pairs": [["a", "b"]], "by": {"x": {"n": 1}}}


def test_what_fits() -> None:
    assert fault_in(RIGHT, TABLE) == ""
    assert fault_in({**RIGHT, "gap": 0.5, "more": object()}, TABLE) == ""
    assert fault_in({**RIGHT, "gap": 1}, TABLE) == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": 7}, "name is 7, not text"),
        ({"sizes": [1, True]}, "sizes[1] is True, not a whole number"),
        ({"sizes": [1, 2.0]}, "sizes[1] is 2.0, not a whole number"),
        ({"sizes": "12"}, "sizes is '12', not a list"),
        ({"gap": "x"}, "gap is 'x', not nothing"),
        ({"pairs": [["a"]]}, "pairs[0] is ['a'], not a list of 2"),
        ({"pairs": [["a", None]]}, "pairs[0][1] is None, not text"),
        ({"by": {"x": {}}}, "by.x.n is missing"),
        ({"by": {"x": {"n": "1"}}}, "by.x.n is '1', not a whole number"),
        ({"by": []}, "by is [], not a table"),
        ({"name": ["x" * 100]}, f"name is {'[' + repr('x' * 100)[:39]}…, not text"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(change: dict[str, Any], said: str) -> None:
    assert fault_in({**RIGHT, **change}, TABLE) == said


def test_what_is_no_table_or_lacks_a_name() -> None:
    assert fault_in([], TABLE, "plan") == "plan is [], not a table"
    assert fault_in(7, int) == ""
    assert fault_in("7", int) == "it is '7', not a whole number"
    assert fault_in({}, {"name": str}) == "name is missing"
