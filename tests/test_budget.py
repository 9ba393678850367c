"""What the repository may weigh is counted as tests/tools/budget.py says."""

from __future__ import annotations

import pytest

import budget


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", 0),
        ("x = 1\n\n# y = 2\n", 1),
        ('"""A module."""\n\nx = [\n    1,\n]\n', 3),
        ('def f():\n    """Says\n    so."""\n    return """\n    text"""\n', 3),
    ],
)
def test_lines_that_hold_code(text: str, lines: int) -> None:
    assert budget.code_lines(text) == lines


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("found = 1\nprint(found)\n", []),
        ("def f(found):\n    a = 1\n    b = 2\n    c = 3\n    return found\n", [(1, "found")]),
        ("def f(ways):\n    a = 1\n    b = 2\n    c = 3\n    return ways\n", []),
        ("found = 1\n\n\n\ndef f():\n    found = 2\n    return found\n", []),
    ],
)
def test_names_that_say_nothing(text: str, faults: list[tuple[int, str]]) -> None:
    assert budget.empty_names(text) == faults


def test_what_is_above_its_number_is_told() -> None:
    numbers = {"lines": {"graph": 11, "tdl": 5}, "names": {"api": 1}}
    assert budget.excesses(numbers, {"lines": {"graph": 10, "tdl": 5}}) == [
        "lines: graph is 11, and may be 10",
        "names: api is 1, and may be 0",
    ]


def test_the_numbers_are_written_as_they_are_read() -> None:
    numbers = {"lines": {"features/prove": 7, ".": 1}}
    assert budget.tomllib.loads(budget.as_toml(numbers)) == numbers
