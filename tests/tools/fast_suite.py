"""What of many cases runs when: fast, slow, or at night. Together the three run all; see docs/contributing.md."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import settings

Cases = list[Any]
"""What ``pytest.mark.parametrize`` takes."""


def spread(*values: Iterable[Any], one_of: int) -> Cases:
    """All combinations of the values; one of so many runs fast: those whose places add up to a multiple.

    These lie on diagonals: of two parameters with at least ``one_of`` values each, every value is among them.
    """
    return [_case(case, None if is_one else pytest.mark.slow) for case, is_one in _on_diagonals(values, one_of)]


def by_night(*values: Iterable[Any], one_of: int, night: Collection[tuple[Any, ...]] = ()) -> Cases:
    """As ``spread``, but one of so many is slow, which CI runs, and the others run at night, as do those named."""
    cases = list(_on_diagonals(values, one_of))
    assert set(night) <= {tuple(case) for case, is_one in cases if is_one}, "what CI would not run is named in vain"
    return [
        _case(case, pytest.mark.slow if is_one and tuple(case) not in night else pytest.mark.nightly)
        for case, is_one in cases
    ]


def draws(few: int, many: int) -> Cases:
    """How many are drawn: few in CI, where the test is slow, and many at night."""
    return [_case([few], pytest.mark.slow), _case([many], pytest.mark.nightly)]


def chosen(values: Iterable[Any], fast: Collection[Any], night: Collection[Any] = ()) -> Cases:
    """All of the values; those that are named run fast, or at night. A tuple is one for each of several parameters."""
    values = list(values)
    assert {*fast, *night} <= set(values), "what is no value is named in vain"

    def mark(value: Any) -> pytest.MarkDecorator | None:
        if value in fast:
            return None
        return pytest.mark.nightly if value in night else pytest.mark.slow

    return [_case(list(value) if isinstance(value, tuple) else [value], mark(value)) for value in values]


def _on_diagonals(values: Sequence[Iterable[Any]], one_of: int) -> Iterator[tuple[list[Any], bool]]:
    for places in itertools.product(*map(enumerate, values)):
        yield [value for _, value in places], sum(place for place, _ in places) % one_of == 0


def _case(values: list[Any], mark: pytest.MarkDecorator | None) -> Any:
    return pytest.param(*values, marks=[] if mark is None else [mark])


def examples(count: int) -> settings:
    """Of a test with drawn examples: so many at night, else the profile's share of them (``tests/conftest.py``)."""
    return settings(max_examples=max(4, count * settings.default.max_examples // 100))
