"""Interval analysis against enumeration of the index space."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fast_suite import examples
from planner.errors import DescriptionError
from planner.tdl.analyse import interval_of
from planner.tdl.expr import FloorDiv, Index, Mod, Number, Plus, Times, Var
from planner.tdl.interval import Affine, End, Interval, Symbol

NAMES = ("i", "j", "k")
Box = dict[str, tuple[int, int]]


def evaluate(index: Index, point: dict[str, int]) -> Fraction:
    """An index at one point, by the definition of the language."""
    match index:
        case Var(name):
            return Fraction(point[name])
        case Number(value):
            return Fraction(value)
        case Plus(left, right):
            return evaluate(left, point) + evaluate(right, point)
        case Times(inner, factor):
            return evaluate(inner, point) * factor
        case FloorDiv(inner, divisor):
            return Fraction(evaluate(inner, point) // divisor)
        case Mod(inner, divisor):
            return evaluate(inner, point) % divisor
    raise AssertionError(index)


def values(index: Index, box: Box) -> list[Fraction]:
    points = product(*(range(*box[name]) for name in NAMES))
    return [evaluate(index, dict(zip(NAMES, point, strict=True))) for point in points]


def bounds(index: Index, box: Box) -> tuple[int, int]:
    interval = interval_of(index)
    assert interval is not None
    return integers(interval, box)


def integers(interval: Interval, box: Box) -> tuple[int, int]:
    ends = {}
    for name, (lo, hi) in box.items():
        ends[Symbol(name, End.FIRST)], ends[Symbol(name, End.LAST)] = np.array([lo]), np.array([hi - 1])
    low, high = interval.integers(ends)
    return int(np.ravel(low)[0]), int(np.ravel(high)[0])


variables = st.sampled_from([Var(name) for name in NAMES])
numbers = st.integers(-9, 9).map(lambda value: Number(Fraction(value)))
factors = st.integers(-7, 7).map(Fraction)
ratios = st.builds(Fraction, st.integers(-6, 6), st.integers(1, 5))


def affine(scale: st.SearchStrategy[Fraction]) -> st.SearchStrategy[Index]:
    return st.recursive(
        variables | numbers,
        lambda inner: st.builds(Plus, inner, inner) | st.builds(Times, inner, scale),
        max_leaves=6,
    )


whole_numbered = st.recursive(
    affine(factors),
    lambda inner: (
        st.builds(Plus, inner, inner)
        | st.builds(Times, inner, factors)
        | st.builds(FloorDiv, inner, st.integers(1, 6))
        | st.builds(Mod, inner, st.integers(1, 6))
    ),
    max_leaves=5,
)


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    found = {}
    for name in NAMES:
        lo = draw(st.integers(0, 12))
        found[name] = (lo, lo + draw(st.integers(1, 6)))
    return found


@given(whole_numbered, boxes())
@examples(400)
def test_every_read_lies_in_the_interval(index: Index, box: Box) -> None:
    low, high = bounds(index, box)
    assert all(low <= value < high for value in values(index, box))


@given(whole_numbered, boxes(), st.frozensets(st.sampled_from(NAMES)))
def test_a_variable_that_is_0_alone_need_not_be_said(index: Index, box: Box, single: frozenset[str]) -> None:
    interval = interval_of(index)
    assert interval is not None
    there = {name: (0, 1) if name in single else ends for name, ends in box.items()}
    assert integers(interval.at_origin(single), there) == integers(interval, there)
    assert single.isdisjoint(interval.at_origin(single).along)


def repeats_a_variable(index: Index) -> bool:
    def count(tree: Index) -> list[str]:
        match tree:
            case Var(name):
                return [name]
            case Plus(left, right):
                return count(left) + count(right)
            case Times(inner, _):
                return count(inner)
        return []

    found = count(index)
    return len(found) != len(set(found))


@given(affine(factors), boxes())
@examples(400)
def test_the_hull_of_an_affine_index_is_exact(index: Index, box: Box) -> None:
    if repeats_a_variable(index):
        return  # i - i has the interval of two variables: sound, as the test above shows, and wider
    found = values(index, box)
    assert bounds(index, box) == (min(found), max(found) + 1)


@given(affine(ratios), boxes())
@examples(300)
def test_a_rational_index_reads_integers_within_its_exact_ends(index: Index, box: Box) -> None:
    low, high = bounds(index, box)
    found = values(index, box)
    assert all(low <= value < high for value in found if value.denominator == 1)
    if not repeats_a_variable(index):
        assert low >= min(found)
        assert high - 1 <= max(found)


@given(st.integers(1, 9), st.integers(0, 40), st.integers(1, 30))
def test_division_by_a_constant_is_exact_for_one_variable(divisor: int, lo: int, extent: int) -> None:
    box = {"i": (lo, lo + extent), "j": (0, 1), "k": (0, 1)}
    found = values(FloorDiv(Var("i"), divisor), box)
    assert bounds(FloorDiv(Var("i"), divisor), box) == (min(found), max(found) + 1)
    low, high = bounds(Mod(Var("i"), divisor), box)
    remainders = values(Mod(Var("i"), divisor), box)
    if lo // divisor == (lo + extent - 1) // divisor or extent >= divisor:
        assert (low, high) == (min(remainders), max(remainders) + 1)
    else:
        assert (low, high) == (0, divisor)


def form(lower: dict[str, int], upper: dict[str, int], constant: int) -> Interval:
    """Equation 1's vector <l, u, c>, with the first value of a range for l and the last for u."""
    first = {Symbol(name, End.FIRST): Fraction(value) for name, value in lower.items()}
    last = {Symbol(name, End.LAST): Fraction(value) for name, value in upper.items()}
    return Interval(Affine.of(first, Fraction(constant)), Affine.of(last, Fraction(constant)))


def test_arithmetic_of_figure_4() -> None:
    i, j = Interval.variable("i"), Interval.variable("j")
    three = Interval.constant(Fraction(3))
    assert i + three == form({"i": 1}, {"i": 1}, 3)
    assert i + three.scale(Fraction(-1)) == form({"i": 1}, {"i": 1}, -3)
    assert (i + three).scale(Fraction(2)) == form({"i": 2}, {"i": 2}, 6)
    assert (i + three).scale(Fraction(1, 3)).scale(Fraction(3)) == i + three
    assert i + j == form({"i": 1, "j": 1}, {"i": 1, "j": 1}, 0)
    negative = i.scale(Fraction(-1))
    assert negative.first == Affine.of({Symbol("i", End.LAST): Fraction(-1)}, Fraction(0))
    assert negative.last == Affine.of({Symbol("i", End.FIRST): Fraction(-1)}, Fraction(0))


def test_the_shift_of_section_4_2() -> None:
    # "B = lambda i : A[i+2]" over [0, 9]: a worker with i in [0, 4] reads [2, 6], one with [5, 9] reads [7, 11].
    index = Plus(Var("i"), Number(Fraction(2)))
    rest = {"j": (0, 1), "k": (0, 1)}
    assert bounds(index, {"i": (0, 5), **rest}) == (2, 7)
    assert bounds(index, {"i": (5, 10), **rest}) == (7, 12)


@pytest.mark.parametrize("divisor", [0, -2])
def test_a_divisor_that_is_not_positive_is_refused(divisor: int) -> None:
    with pytest.raises(DescriptionError, match="divided by"):
        Interval.variable("i").floor_div(divisor)
    with pytest.raises(DescriptionError, match="divided by"):
        Interval.variable("i").mod(divisor)
