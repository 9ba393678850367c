"""Equal stretches of a row: layers of a network, time steps of a recurrence, blocks of a drawing.

A row is what stands in order: calls of a step, columns of a picture. Two stretches of it are equal if their items are,
one by one, and if the same items of both are tied to each other: what the third item of one reads from its first, the
third item of the other reads from its first. In which order a graph's ops stand says nothing of them, so that runs of
equal blocks of a graph are found by its edges instead (``planner.search.repeats.runs``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace


def numbered(contents: Iterable[Hashable]) -> list[int]:
    """The number of each item: equal for equal items, and in the order in which contents are first met.

    >>> numbered(["conv", "relu", "conv", "add"])
    [0, 1, 0, 2]
    """
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(content, len(numbers)) for content in contents]


@dataclass(frozen=True, slots=True)
class Stretches:
    """Equal stretches of a row, none of which has an item of another."""

    starts: tuple[int, ...]
    """Numbers of their first items, ascending; at least two."""
    length: int
    """Items of each."""
    begun: int = 0
    """Items behind the last one that are as its first ones: so far all may be read from later on."""

    @property
    def saved(self) -> int:
        """Items that need not be said again."""
        return (len(self.starts) - 1) * self.length


def most_saving(
    forms: Sequence[int], names: Sequence[tuple[str, ...]] = (), *, shortest: int = 1, longest: int | None = None
) -> Stretches | None:
    """The equal stretches that save the most items; of those that save as many, the ones that begin first.

    >>> most_saving(numbered("abcbcbcd"), longest=64)
    Stretches(starts=(1, 3, 5), length=2, begun=0)
    >>> most_saving(numbered("abcd-abcd-"), shortest=5)
    Stretches(starts=(0, 5), length=5, begun=0)

    Args:
        forms: by item; equal for items that are equal but for their names.
        names: by item what ties it to others: the tensors that it reads and makes, say, as many for items of one form.
            Equal stretches may name them differently, but for different tensors different ones. (): no item is tied.
        shortest: items of a stretch, at least.
        longest: looks for stretches of at most so many items that follow each other without a gap; None: of any length
            and anywhere.

    Returns:
        None if there are no two.
    """
    row = _Row(forms, names)
    grams = [tuple(forms[number : number + shortest]) for number in range(len(forms) - shortest + 1)]
    places_of: dict[tuple[int, ...], list[int]] = {}
    for number, gram in enumerate(grams):
        places_of.setdefault(gram, []).append(number)
    best: Stretches | None = None
    ends: dict[int, int] = {}
    """By distance, up to where a pair of stretches has been looked at."""
    for number, gram in enumerate(grams):
        places = places_of[gram]
        later = bisect_left(places, number + shortest)
        # Without gaps, any place as far away as a stretch is long may be the next one's. With gaps it is the nearest:
        # to try all of them would take time that grows with the square of a row of thousands of calls.
        end = later + 1 if longest is None else bisect_right(places, number + longest)
        for place in places[later:end]:
            distance = place - number
            if ends.get(distance, 0) > number:
                continue
            length = row.equal(number, place, distance)
            ends[distance] = number + max(length, 1)
            if length < (shortest if longest is None else distance):
                continue
            stretches = Stretches(row.starts(number, places, length, is_adjacent=longest is not None), length)
            if best is None or stretches.saved > best.saved:
                best = stretches
    if best is None:
        return None
    last = best.starts[-1]
    return replace(best, begun=row.equal(last, last + best.length, best.length))


class _Row:
    """A row's items."""

    def __init__(self, forms: Sequence[int], names: Sequence[tuple[str, ...]]) -> None:
        self._forms = forms
        self._names = names or [()] * len(forms)

    def equal(self, first: int, second: int, longest: int) -> int:
        """The number of items from two places on that are equal, and tied to each other in the same way."""
        second_of: dict[str, str] = {}
        first_of: dict[str, str] = {}
        longest = min(longest, len(self._forms) - second)
        for offset in range(longest):
            if self._forms[first + offset] != self._forms[second + offset]:
                return offset
            for name, peer in zip(self._names[first + offset], self._names[second + offset], strict=True):
                if second_of.setdefault(name, peer) != peer or first_of.setdefault(peer, name) != name:
                    return offset
        return longest

    def starts(self, first: int, places: Sequence[int], length: int, *, is_adjacent: bool) -> tuple[int, ...]:
        """The beginnings of stretches that are equal to the one from a place on.

        Args:
            first: that place.
            places: where such stretches may begin, ascending.
            length: of each.
            is_adjacent: each begins where the one before ends.
        """
        starts = [first]
        for place in places[bisect_left(places, first + length) :]:
            end = starts[-1] + length
            if is_adjacent and place > end:
                break
            if place >= end and self.equal(first, place, length) == length:
                starts.append(place)
        return tuple(starts)
