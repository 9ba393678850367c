"""Equal stretches of a row, held to enumeration."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from planner.graph.compare.repeats import most_saving, numbered

ROWS = st.lists(st.integers(0, 3), max_size=24).map(numbered)


def most_enumerated(row: Sequence[int], longest: int) -> int:
    """Items that stretches which follow each other save at most, by trying every place, length and count."""
    return max(
        (
            (times - 1) * length
            for start in range(len(row))
            for length in range(1, longest + 1)
            for times in range(2, (len(row) - start) // length + 1)
            if row[start : start + length] * times == row[start : start + length * times]
        ),
        default=0,
    )


@given(ROWS, st.integers(1, 8))
def test_nothing_that_follows_itself_saves_more(row: list[int], longest: int) -> None:
    found = most_saving(row, longest=longest)
    assert (0 if found is None else found.saved) == most_enumerated(row, longest)
    if found is not None:
        assert found.length <= longest
        assert all(end - start == found.length for start, end in pairwise(found.starts))
        behind = found.starts[-1] + found.length
        as_first = [one == other for one, other in zip(row[behind:], row[found.starts[0] :], strict=False)]
        assert found.begun == (as_first.index(False) if False in as_first else len(as_first)) < found.length


@given(ROWS, st.integers(1, 4), st.lists(st.integers(0, 2), min_size=24, max_size=24))
def test_stretches_anywhere_are_equal_apart_and_tied_alike(row: list[int], shortest: int, reads: list[int]) -> None:
    # Item k makes t{k}, and reads what was made one, two or three items before.
    names = [(f"t{number - back - 1}", f"t{number}") for number, back in zip(range(len(row)), reads, strict=False)]
    found = most_saving(row, names, shortest=shortest)
    if found is None:
        return
    first, *others = found.starts
    assert found.length >= shortest
    assert all(end - start >= found.length for start, end in pairwise(found.starts))
    for start in others:
        assert row[start : start + found.length] == row[first : first + found.length]
        for item in range(found.length):
            inside = [reads[at + item] < item for at in (first, start)]
            assert inside[0] == inside[1], "both read from their own stretch, or none does"
            assert not inside[0] or reads[first + item] == reads[start + item]


def test_what_is_tied_otherwise_is_not_equal() -> None:
    forms = numbered("abcabc")
    chained = [("x", "t0"), ("t0", "t1"), ("t1", "t2"), ("t2", "t3"), ("t3", "t4"), ("t4", "t5")]
    assert most_saving(forms, chained, shortest=3) is not None
    chained[5] = ("t3", "t5")  # reads from the item before the last, which the first stretch does not
    assert most_saving(forms, chained, shortest=3) is None
