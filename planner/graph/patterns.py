"""Names that differ in numbers alone, as one: what repeated blocks of a model have in common."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_DIGITS: Final = re.compile(r"[0-9]+")


def without_numbers(name: str) -> str:
    """The name with * for each of its numbers; equal for names that differ in numbers alone."""
    return _DIGITS.sub("*", name)


def pattern(names: Sequence[str]) -> str:
    """The names as one, with * in the place of numbers that differ.

    >>> pattern(["h.0.w1", "h.1.w1"])
    'h.*.w1'

    Args:
        names: at least one; they differ in numbers at most.
    """
    numbers = [_DIGITS.findall(name) for name in names]
    differs = [len(set(column)) > 1 for column in zip(*numbers, strict=True)]
    between = _DIGITS.split(names[0])
    kept = ["*" if differs[place] else number for place, number in enumerate(numbers[0])]
    return "".join(text + number for text, number in zip(between, [*kept, ""], strict=True))


def counted(names: Sequence[str]) -> str:
    """A name; or the pattern of several, and how many they are.

    >>> counted(["h.0.w1", "h.1.w1"])
    'h.*.w1 x2'

    Args:
        names: see ``pattern``.
    """
    return pattern(names) + (f" x{len(names)}" if len(names) > 1 else "")
