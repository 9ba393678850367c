"""Names that differ in numbers alone, as one: what repeated blocks of a model have in common."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

_DIGITS: Final = re.compile(r"[0-9]+")


def without_numbers(name: str) -> str:
    """The name with * for each of its numbers; equal for names that differ in numbers alone."""
    return _DIGITS.sub("*", name)


def numbers(name: str) -> tuple[int, ...]:
    """The numbers in a name."""
    return tuple(map(int, _DIGITS.findall(name)))


def varying(names: Sequence[str]) -> list[int]:
    """The numbers of names that differ; the names differ in numbers at most."""
    return [at for at, column in enumerate(zip(*map(_DIGITS.findall, names), strict=True)) if len(set(column)) > 1]


def replaced(name: str, texts: Mapping[int, str]) -> str:
    """The name with texts in the place of some of its numbers.

    >>> replaced("h.0.w1", {0: "{0-3}"})
    'h.{0-3}.w1'
    """
    numbers = [texts.get(at, number) for at, number in enumerate(_DIGITS.findall(name))]
    return "".join(text + number for text, number in zip(_DIGITS.split(name), [*numbers, ""], strict=True))


def pattern(names: Sequence[str]) -> str:
    """The names as one, with * in the place of numbers that differ.

    >>> pattern(["h.0.w1", "h.1.w1"])
    'h.*.w1'

    Args:
        names: at least one; they differ in numbers at most.
    """
    return replaced(names[0], dict.fromkeys(varying(names), "*"))


def counted(names: Sequence[str]) -> str:
    """A name; or the pattern of several, and how many they are.

    >>> counted(["h.0.w1", "h.1.w1"])
    'h.*.w1 x2'

    Args:
        names: see ``pattern``.
    """
    return pattern(names) + (f" x{len(names)}" if len(names) > 1 else "")


def ranges(places: Iterable[tuple[int, ...]]) -> list[str]:
    """Places as boxes of them, in their order.

    >>> ranges([(0, 1), (0, 2), (1, 1), (1, 2), (3, 0)])
    ['0-1.1-2', '3.0']

    Args:
        places: different ones, of as many numbers.
    """
    boxes = [tuple((number, number) for number in place) for place in places]
    for dim in reversed(range(len(boxes[0]) if boxes else 0)):
        merged: list[tuple[tuple[int, int], ...]] = []
        for box in sorted(boxes, key=lambda box: (box[:dim] + box[dim + 1 :], box[dim])):
            last = merged[-1] if merged else box
            if last[dim][1] + 1 == box[dim][0] and last[:dim] + last[dim + 1 :] == box[:dim] + box[dim + 1 :]:
                merged[-1] = (*last[:dim], (last[dim][0], box[dim][1]), *last[dim + 1 :])
            else:
                merged.append(box)
        boxes = merged
    return [".".join(f"{a}" if a == b else f"{a}-{b}" for a, b in box) for box in sorted(boxes)]
