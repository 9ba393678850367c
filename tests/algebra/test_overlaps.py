"""Elements in common, counted by groups of cuts: as many as worker by worker."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.algebra import overlaps
from planner.algebra.overlaps import elements_in_common
from planner.algebra.region import Boxes
from planner.algebra.tiling import Only, Partial, Placement, Replicate, Shard, Tiling, cuts_along
from planner.algebra.ways import Ints, Ways

placements = st.sampled_from(
    [Shard(0), Shard(1), Shard(2), Shard(1, 3), Shard(0, 1, 1), Shard(1, 1, 1), Replicate(), Partial(), Only(1)]
)


@pytest.fixture(scope="module", autouse=True)
def _few_are_many() -> object:
    before, overlaps._MANY = overlaps._MANY, 0
    yield
    overlaps._MANY = before


def numbers(ways: Ways, shape: tuple[int, ...], tilings: list[Tiling]) -> Ints:
    """The ways of tilings, shape [dims, tilings]."""
    found = np.array([[ways.whole_way(extent)] * len(tilings) for extent in shape], dtype=np.int64)
    for number, tiling in enumerate(tilings):
        for dim, cuts, how in cuts_along(tiling):
            found[dim, number] = ways.number_of_cuts(shape[dim], cuts, how)
    return found


def fits(tiling: Tiling, shape: tuple[int, ...]) -> Tiling:
    """Without what is along dims that the shape does not have."""
    kept = (Replicate() if isinstance(one, Shard) and one.dim >= len(shape) else one for one in tiling.placements)
    return Tiling(tuple(kept), tiling.ways)


def check(shape: tuple[int, ...], some: list[Tiling], others: list[Tiling]) -> None:
    ways = Ways(some[0].ways)
    counted = elements_in_common(ways, numbers(ways, shape, some), numbers(ways, shape, others))
    pairs = zip(some, others, strict=True)
    assert counted.tolist() == [int(one.boxes(shape).overlap(other.boxes(shape)).sum()) for one, other in pairs]


@given(
    st.sampled_from([(16,), (7,), (12, 64), (5, 7, 24), (8, 16, 4), (3, 1, 2)]),
    st.sampled_from([(2, 2, 2, 2), (3, 3, 3), (2, 3, 2), (4, 4)]),
    st.lists(st.tuples(st.lists(placements, min_size=4, max_size=4), st.lists(placements, min_size=4, max_size=4))),
)
def test_pairs_have_as_much_in_common_as_their_regions(
    shape: tuple[int, ...], ways: tuple[int, ...], placed: list[tuple[list[Placement], list[Placement]]]
) -> None:
    both = [[fits(Tiling(tuple(one[: len(ways)]), ways), shape) for one in pair] for pair in placed]
    if both:
        check(shape, [pair[0] for pair in both], [pair[1] for pair in both])


def test_unequal_pieces_along_joined_cuts() -> None:
    """The cuts along a dim of 7 are joined by what is along the others: to one another, and to others."""
    ways = (2, 2, 2, 2)
    one = Tiling((Shard(0), Shard(0), Shard(1), Shard(2)), ways)
    other = Tiling((Shard(1), Shard(2), Shard(0), Shard(0)), ways)
    third = Tiling((Shard(1), Shard(1), Shard(1), Shard(0)), ways)
    check((7, 8, 8), [one, one, other, third], [other, third, third, one])


@pytest.mark.parametrize("cuts", [(0, 1), (0, 1, 2), None])
def test_regions_are_known_by_the_cuts_on_which_they_depend(cuts: tuple[int, ...] | None) -> None:
    """Pieces of 3 with a margin of 1 on either side: those of the tiling have as much in common with them."""
    ways, extent = Ways((2, 2, 2)), 12
    tiling = Tiling((Shard(0), Shard(0), Replicate()), ways.of_cuts)
    boxes = tiling.boxes((extent,))
    halo = Boxes(np.maximum(boxes.lo - 1, 0), np.minimum(boxes.hi + 1, extent))
    groups = slice(None, None, 2 if cuts == (0, 1) else 1)
    number = ways.number_of(extent, halo.lo[groups, 0].copy(), halo.hi[groups, 0].copy(), cuts)
    assert ways.knows_cuts[number] == (cuts is not None)
    others = np.concatenate([[[number]], numbers(ways, (extent,), [tiling])], axis=1)
    counted = elements_in_common(ways, np.array([[number, number]]), others)
    assert counted.tolist() == [int(halo.elements.sum()), int(boxes.elements.sum())]


def test_groups_are_looked_at_where_they_are_fewer_than_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlaps, "_by_worker", None)
    ways = (2, 2, 2, 2)
    check(
        (7, 8), [Tiling((Shard(0), Shard(1), Shard(1), Replicate()), ways)], [Tiling((Shard(1), *[Shard(0)] * 3), ways)]
    )


def test_all_of_a_dim_is_known_by_no_cuts_whatever_was_said_before() -> None:
    """A part that does not depend on the cuts on which it might."""
    ways = Ways((2, 2))
    all_of_it = ways.number_of(4, np.zeros(4, dtype=np.int64), np.full(4, 4, dtype=np.int64), (0, 1))
    assert ways.whole_way(4) == all_of_it
    half = numbers(ways, (4,), [Tiling((Replicate(), Shard(0)), (2, 2))])
    assert elements_in_common(ways, np.array([[all_of_it]]), half).tolist() == [8]
