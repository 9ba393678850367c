"""What of many cases the fast tests run. The slow tests run the rest: together they run all.

Draws are the exception: their number goes with the profile of hypothesis, and `make test-nightly` has the largest.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest
from hypothesis import settings

Cases = list[Any]
"""What ``pytest.mark.parametrize`` takes."""


def spread(*values: Iterable[Any], one_of: int) -> Cases:
    """All combinations of the values; one of so many runs fast: those whose places add up to a multiple.

    These lie on diagonals: of two parameters with at least ``one_of`` values each, every value is among them.
    """
    combinations = itertools.product(*map(enumerate, values))
    return [
        _case([value for _, value in places], sum(place for place, _ in places) % one_of == 0)
        for places in combinations
    ]


def chosen(values: Iterable[Any], fast: Collection[Any]) -> Cases:
    """All of the values; those that are named run fast. A tuple is a value for each of several parameters."""
    values = list(values)
    assert set(fast) <= set(values), "what is no value is named in vain"
    return [_case(list(value) if isinstance(value, tuple) else [value], value in fast) for value in values]


def _case(values: list[Any], fast: bool) -> Any:
    return pytest.param(*values, marks=[] if fast else [pytest.mark.slow])


def examples(count: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Of a test with drawn examples: so many at night, else the profile's share of them (``tests/conftest.py``)."""
    return settings(max_examples=max(4, count * settings.default.max_examples // 100))
