"""Boxes against enumeration of their points."""

import itertools

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.algebra.region import Boxes, Region, tile


def points(region: Region) -> set[tuple[int, ...]]:
    return set(itertools.product(*(range(lo, hi) for lo, hi in zip(region.lo, region.hi, strict=True))))


@st.composite
def regions(draw: st.DrawFn, rank: int) -> Region:
    lo = draw(st.tuples(*[st.integers(0, 5)] * rank))
    extent = draw(st.tuples(*[st.integers(0, 4)] * rank))
    return Region(lo, tuple(a + b for a, b in zip(lo, extent, strict=True)))


pairs = st.integers(1, 3).flatmap(lambda rank: st.tuples(regions(rank), regions(rank)))


@given(pairs)
def test_intersection_is_the_common_points(pair: tuple[Region, Region]) -> None:
    one, other = pair
    common = one.intersect(other)
    assert points(common) == points(one) & points(other)
    assert common.elements == len(points(common))


@given(pairs)
def test_subtraction_leaves_disjoint_boxes_of_the_rest(pair: tuple[Region, Region]) -> None:
    one, other = pair
    rest = one.subtract(other)
    assert set().union(*map(points, rest)) == points(one) - points(other)
    assert sum(box.elements for box in rest) == len(points(one) - points(other))


@given(pairs)
def test_boxes_tile_a_region_if_each_of_its_points_is_in_one(pair: tuple[Region, Region]) -> None:
    whole, other = pair
    assume(not whole.is_empty)
    parts = tuple(box for box in (*whole.subtract(other), whole.intersect(other)) if not box.is_empty)
    assert tile(parts, whole)
    assert not tile(parts[1:], whole)
    assert not tile((*parts, parts[0]), whole)
    first, last = parts[0], parts[-1]
    if len(parts) == 2 and first.elements == last.elements:
        assert not tile((first, first), whole)
    assert not tile((Region(first.lo, (first.hi[0] + 1, *first.hi[1:])), *parts[1:]), whole)


@given(pairs)
def test_hull_holds_both_and_contains_agrees(pair: tuple[Region, Region]) -> None:
    one, other = pair
    hull = one.hull(other)
    assert points(one) | points(other) <= points(hull)
    assert hull.contains(one)
    assert hull.contains(other)
    assert one.contains(other) == (points(other) <= points(one))


@given(
    st.integers(1, 3).flatmap(lambda rank: st.lists(st.tuples(regions(rank), regions(rank)), min_size=1, max_size=4))
)
def test_boxes_count_as_regions_do(rows: list[tuple[Region, Region]]) -> None:
    one = Boxes(np.array([a.lo for a, _ in rows]), np.array([a.hi for a, _ in rows]))
    other = Boxes(np.array([b.lo for _, b in rows]), np.array([b.hi for _, b in rows]))
    assert one.elements.tolist() == [a.elements for a, _ in rows]
    assert one.overlap(other).tolist() == [a.intersect(b).elements for a, b in rows]
    assert one.cross_overlap(other).tolist() == [[a.intersect(b).elements for _, b in rows] for a, _ in rows]
    for box, (a, b) in zip(one.hull(other), rows, strict=True):
        if points(a) or points(b):
            assert box == a.hull(b)


def test_a_region_as_slices_of_the_array_that_holds_its_frame() -> None:
    array = np.arange(20).reshape(4, 5)
    frame, inner = Region((10, 20), (14, 25)), Region((11, 22), (13, 24))
    assert array[inner.within(frame)].tolist() == [[7, 8], [12, 13]]
