"""Divisions of an index space: whatever is asked first, pairs have what they have in common."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.algebra import counts as counts_module
from planner.algebra import movements as module
from planner.algebra import ways as ways_module
from planner.algebra.counts import Counts
from planner.algebra.divisions import Divisions
from planner.algebra.movements import counted, made, read
from planner.algebra.region import Boxes
from planner.algebra.tiling import Partial, Replicate, Shard, Tiling
from planner.algebra.ways import Ways
from redistribution import redistribution_table

WAYS = (2, 3)
SHAPE = (7, 6)
ALL = [
    Tiling((outer, inner), WAYS)
    for outer in (Shard(0), Shard(1), Replicate())
    for inner in (Shard(0), Shard(1), Shard(1, 2), Replicate())
]
some = st.lists(st.sampled_from(ALL), min_size=1, max_size=5)


def missing(needed: Boxes, owned: Boxes) -> int:
    return int((needed.elements - needed.overlap(owned)).sum())


@given(
    st.lists(st.lists(st.tuples(some, some), min_size=1, max_size=3), min_size=1, max_size=3),
    st.sampled_from([0, 4, 99]),
    st.booleans(),
)
def test_pairs_are_counted_alike_together_and_whatever_was_asked_before(asked: list, limit: int, many: bool) -> None:
    before = module._TOGETHER, counts_module._FEW_WORKERS, counts_module._PAIRS
    module._TOGETHER, counts_module._FEW_WORKERS, counts_module._PAIRS = limit, 0 if many else 128, 5
    try:
        divisions = Divisions(SHAPE, Counts(Ways(WAYS)))
        for together in asked:
            numbers = [tuple(map(divisions.numbers, both)) for both in together]
            tables = counted([read(divisions, *both) for both in numbers])
            for (owned, needed), table in zip(together, tables, strict=True):
                right = [[missing(need.boxes(SHAPE), own.boxes(SHAPE)) for need in needed] for own in owned]
                assert table.tolist() == right
        assert asked
    finally:
        module._TOGETHER, counts_module._FEW_WORKERS, counts_module._PAIRS = before


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from([SHAPE, (6,), (7, 5, 6)]), some, some), min_size=1, max_size=6),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
    st.sampled_from([0, 4, 99]),
    st.sampled_from([1, 32]),
)
def test_index_spaces_are_counted_together(asked: list, finds_equal: bool, limit: int, room: int) -> None:
    """Whatever was asked before of others, of fewer dims and of more, and whether or not there was room for it."""
    before = ways_module._FEW, module._TOGETHER, counts_module._ROOM
    ways_module._FEW, module._TOGETHER, counts_module._ROOM = 0 if finds_equal else 1 << 14, limit, room
    try:
        counts = Counts(Ways(WAYS))
        divisions: dict[tuple[int, ...], Divisions] = {}
        for together in asked:
            tables = []
            for shape, owned, needed in together:
                space = divisions.setdefault(shape, Divisions(shape, counts))
                owned, needed = within(owned, shape), within(needed, shape)
                tables.append(read(space, space.numbers(owned), space.numbers(needed)))
            for (shape, owned, needed), table in zip(together, counted(tables), strict=True):
                owned, needed = within(owned, shape), within(needed, shape)
                right = [[missing(need.boxes(shape), own.boxes(shape)) for need in needed] for own in owned]
                assert table.tolist() == right
        assert asked
    finally:
        ways_module._FEW, module._TOGETHER, counts_module._ROOM = before


def within(tilings: list[Tiling], shape: tuple[int, ...]) -> list[Tiling]:
    """The same of an index space of fewer dims, perhaps: what divides a dim that is not there is repeated."""
    return [
        Tiling(
            tuple(
                Replicate() if isinstance(one, Shard) and one.dim >= len(shape) else one for one in tiling.placements
            ),
            tiling.ways,
        )
        for tiling in tilings
    ]


@given(st.lists(st.integers(0, 7), min_size=24, max_size=24), some, st.sampled_from([0, 99]))
def test_regions_that_are_no_tilings_are_counted_as_well(ends: list[int], owned: list[Tiling], limit: int) -> None:
    ends_of = np.sort(np.array(ends, dtype=np.int64).reshape(6, 2, 2), axis=1)
    boxes = Boxes(ends_of[:, 0], np.minimum(ends_of[:, 1], SHAPE))
    divisions = Divisions(SHAPE, Counts(Ways(WAYS)))
    number = divisions.number_of(boxes)
    assert divisions.number_of(Boxes(boxes.lo.copy(), boxes.hi.copy())) == number
    before, module._TOGETHER = module._TOGETHER, limit
    try:
        [table] = counted([read(divisions, divisions.numbers(owned), [number])])
    finally:
        module._TOGETHER = before
    assert table[:, 0].tolist() == [missing(boxes, own.boxes(SHAPE)) for own in owned]


@given(st.lists(st.tuples(some, some), min_size=2, max_size=4), st.sampled_from([0, 4, 99]))
def test_partial_results_are_counted_alike_whatever_was_asked_before(asked: list, limit: int) -> None:
    with_partial = [
        (owned, [Tiling((Partial(), tiling.placements[1]), WAYS) for tiling in sources] + sources[:1])
        for owned, sources in asked
    ]
    right = [redistribution_table(made_so, owned, SHAPE).tolist() for owned, made_so in with_partial]
    before, module._TOGETHER = module._TOGETHER, limit
    try:
        divisions = Divisions(SHAPE, Counts(Ways(WAYS)))
        for (owned, partial), table_alone in zip(with_partial, right, strict=True):
            [table] = counted([made(divisions, divisions.numbers(owned), divisions.numbers(partial))])
            assert table.tolist() == table_alone
        assert asked
    finally:
        module._TOGETHER = before
