"""Tilings: every element has its owners, pieces are even, text goes there and back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.algebra.tiling import (
    Only,
    Partial,
    Reducer,
    Replicate,
    Shard,
    Tiling,
    cuts_along,
    least_shares,
    split_bounds,
)
from planner.errors import UsageError

ways_lists = st.lists(st.integers(2, 4), min_size=1, max_size=3).map(tuple)
shards = st.builds(Shard, st.integers(0, 12), st.integers(1, 99), st.integers(0, 2), st.just(()))
shapes = st.lists(st.integers(1, 13), min_size=1, max_size=3).map(tuple)


@st.composite
def shares_of(draw: st.DrawFn, ways: int) -> tuple[int, ...]:
    """Of each group, or () for equal ones, as often."""
    return draw(
        st.one_of(st.just(()), st.lists(st.integers(1, 9), min_size=ways, max_size=ways).map(tuple).map(least_shares))
    )


@st.composite
def disjoint(draw: st.DrawFn) -> tuple[Tiling, tuple[int, ...]]:
    shape, ways = draw(shapes), draw(ways_lists)
    placements = tuple(
        draw(
            st.one_of(
                st.builds(Shard, st.integers(0, len(shape) - 1), st.integers(1, 4), st.integers(0, 2), shares_of(cut)),
                st.builds(Only, st.integers(0, cut - 1)),
            )
        )
        for cut in ways
    )
    return Tiling(placements, ways), shape


@given(disjoint())
def test_disjoint_tiles_cover_every_element_once(case: tuple[Tiling, tuple[int, ...]]) -> None:
    tiling, shape = case
    owners = np.zeros(shape, dtype=int)
    for region in tiling.boxes(shape):
        owners[tuple(slice(lo, hi) for lo, hi in zip(region.lo, region.hi, strict=True))] += 1
    assert (owners == 1).all()


@st.composite
def any_tiling(draw: st.DrawFn) -> tuple[Tiling, tuple[int, ...]]:
    tiling, shape = draw(disjoint())
    repeated = draw(st.lists(st.booleans(), min_size=len(tiling.ways), max_size=len(tiling.ways)))
    pairs = zip(tiling.placements, repeated, strict=True)
    return Tiling(tuple(Replicate() if again else one for one, again in pairs), tiling.ways), shape


@given(any_tiling())
def test_settled_tilings_divide_alike(case: tuple[Tiling, tuple[int, ...]]) -> None:
    tiling, shape = case
    assert list(tiling.settled.boxes(shape)) == list(tiling.boxes(shape))
    assert tiling.settled.settled == tiling.settled
    assert (tiling.settled == tiling.plain) == (cuts_along(tiling) == cuts_along(tiling.plain))


@given(any_tiling())
def test_nesting_is_another_order_of_cuts(case: tuple[Tiling, tuple[int, ...]]) -> None:
    """Along one dim alone: as if the cuts were made in the order in which they nest."""
    tiling, shape = case
    of_one_dim = Tiling(tuple(Shard(0, 1, n % 3) for n, _ in enumerate(tiling.ways)), tiling.ways)
    [(_, order, _)] = cuts_along(of_one_dim)
    turned = Tiling((Shard(0),) * len(order), tuple(tiling.ways[cut] for cut in order)).boxes(shape)
    groups = np.indices(tiling.ways).reshape(len(tiling.ways), -1).T
    place = np.ravel_multi_index(tuple(groups[:, cut] for cut in order), tuple(tiling.ways[cut] for cut in order))
    assert (of_one_dim.boxes(shape).lo == turned.lo[place]).all()
    assert (of_one_dim.boxes(shape).hi == turned.hi[place]).all()


def test_a_cut_inside_of_a_later_one() -> None:
    """The second cut divides the rows, and the first one each half of them."""
    nested = Tiling.parse("S(0)@1/2 S(0)/2", (2, 2))
    assert [(region.lo[0], region.hi[0]) for region in nested.boxes((8,))] == [(0, 2), (4, 6), (2, 4), (6, 8)]
    assert str(nested) == "S(0)@1/2 S(0)/2"
    assert str(Tiling.parse("S(0)@2/2 S(1)@7/2 S(0)@2/2", (2, 2, 2))) == "S(0)/2 S(1)/2 S(0)/2"


@given(any_tiling())
def test_boxes_are_what_one_cut_after_the_other_leaves(case: tuple[Tiling, tuple[int, ...]]) -> None:
    tiling, shape = case[0].plain, case[1]
    regions = [([0] * len(shape), list(shape))]
    for placement, ways in zip(tiling.placements, tiling.ways, strict=True):
        inner = []
        for lo, hi in regions:
            for group in range(ways):
                low, high = list(lo), list(hi)
                if isinstance(placement, Shard):
                    dim = placement.dim
                    ends = split_bounds(np.array(lo[dim]), np.array(hi[dim]), ways, np.array(group), placement.how)
                    low[dim], high[dim] = map(int, ends)
                elif isinstance(placement, Only) and group != placement.group:
                    high = list(low)
                inner.append((low, high))
        regions = inner
    assert len(regions) == tiling.workers
    for region, (low, high) in zip(tiling.boxes(shape), regions, strict=True):
        if region.is_empty:
            assert any(start >= end for start, end in zip(low, high, strict=True))
        else:
            assert (list(region.lo), list(region.hi)) == (low, high)


@given(st.integers(1, 100), st.integers(2, 9), st.integers(1, 7))
def test_pieces_differ_by_at_most_one_block(size: int, ways: int, block: int) -> None:
    boxes = Tiling((Shard(0, block),), (ways,)).boxes((size,))
    lengths = (boxes.hi - boxes.lo)[:, 0].tolist()
    blocks = [-(-length // block) for length in lengths]
    assert max(blocks) - min(blocks) <= 1
    assert blocks == sorted(blocks, reverse=True)
    assert all(lo % block == 0 or lo == size for lo in boxes.lo[:, 0].tolist())


@given(st.integers(1, 400), st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(1, 7))
def test_shares_are_nearest_to_their_proportion(size: int, shares: list[int], block: int) -> None:
    tiling = Tiling((Shard(0, block, shares=least_shares(shares)),), (len(shares),))
    regions = list(tiling.boxes((size,)))
    assert regions[-1].hi[0] == size
    if not least_shares(shares):
        return
    blocks = -(-size // block)
    for group, region in enumerate(regions):
        exact = blocks * sum(shares[: group + 1]) / sum(shares)
        assert abs(region.hi[0] / block - exact) <= 0.5 + 1e-9 or region.hi[0] == size


@given(shards, st.lists(st.integers(1, 30), min_size=2, max_size=5))
def test_text_of_shares_goes_there_and_back(shard: Shard, shares: list[int]) -> None:
    tiling = Tiling((shard._replace(shares=least_shares(shares)),), (len(shares),)).settled
    assert Tiling.parse(str(tiling), tiling.ways) == tiling


def test_shares_have_one_text() -> None:
    assert str(Tiling.parse("S(0)/(6:2) R/2 S(1,4)/(2:2)", (2, 2, 2))) == "S(0)/(3:1) R/2 S(1,4)/2"


@pytest.mark.parametrize("text", ["S(0)/(3:0)", "R/(3:1)", "P/(1:2)", "S(0)/(1)", "S(0)/(999:998)", "S(0)/(1:2:1)"])
def test_shares_that_are_no_proportion_of_two_groups_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Tiling.parse(text, (2,))


def test_four_heads_of_sixteen_on_three_workers() -> None:
    boxes = Tiling((Shard(0, 16),), (3,)).boxes((64,))
    assert (boxes.hi - boxes.lo)[:, 0].tolist() == [32, 16, 16]
    assert (Tiling((Shard(0),), (3,)).boxes((64,)).hi[:, 0]).tolist() == [22, 43, 64]


def test_order_of_cuts_gives_equal_tiles_and_different_owners() -> None:
    one = Tiling.parse("S(0)/2 S(1)/2 S(0)/2", (2, 2, 2)).boxes((8, 8))
    other = Tiling.parse("S(0)/2 S(0)/2 S(1)/2", (2, 2, 2)).boxes((8, 8))
    assert [box.shape for box in one] == [box.shape for box in other]
    assert list(one) != list(other)


def test_every_replica_owns_all() -> None:
    assert {box.shape for box in Tiling((Replicate(), Shard(1)), (2, 3)).boxes((4, 6))} == {(4, 2)}


def test_a_scalar_has_one_point_and_one_owner_where_only_one_group_holds_it() -> None:
    assert [box.elements for box in Tiling((Only(1), Replicate()), (2, 2)).boxes(())] == [0, 0, 1, 1]


placements = st.one_of(
    shards,
    st.just(Replicate()),
    st.builds(Partial, st.sampled_from(Reducer)),
    st.builds(Only, st.integers(0, 9)),
)


@given(st.lists(st.tuples(placements, st.integers(1, 9)), max_size=4))
def test_text_goes_there_and_back(parts: list[tuple[Shard, int]]) -> None:
    tiling = Tiling(tuple(placement for placement, _ in parts), tuple(ways for _, ways in parts))
    assert Tiling.parse(str(tiling), tiling.ways) == tiling.settled


def test_one_placement_without_ways_means_every_cut() -> None:
    assert str(Tiling.parse("S(1)", (2, 3))) == "S(1)/2 S(1)/3"


@pytest.mark.parametrize(
    "text", ["S", "S(-1)", "S(0,0)", "S(0,0)/2 R/2", "Q", "S(0)/3 R/3", "P(Mean)/2 R/2", "S(0)/2 R/2 R/2"]
)
def test_text_that_is_no_tiling_of_these_cuts_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Tiling.parse(text, (2, 2))


def test_the_hint_offers_what_a_user_can_ask_for() -> None:
    with pytest.raises(UsageError) as caught:
        Tiling.parse("Q", (2, 2))
    assert caught.value.hint == "write S(dim), S(dim,block), R or P, e.g. S(0)/2"
