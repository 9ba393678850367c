"""The table of all pairs of tilings against one pair at a time, element by element for the arriving parts."""

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.algebra.delivery import contributors, reduced_boxes
from planner.algebra.region import Boxes
from planner.algebra.tiling import Only, Partial, Placement, Replicate, Shard, Tiling
from redistribution import redistribution_table


@st.composite
def tilings(draw: st.DrawFn, ways: tuple[int, ...], rank: int, *, made: bool) -> Tiling:
    options: list[st.SearchStrategy[Placement]] = [
        st.builds(Shard, st.integers(0, rank - 1), st.sampled_from([1, 2]), st.integers(0, 1), st.just(())),
        st.just(Replicate()),
    ]
    if made:
        options += [st.just(Partial()), st.builds(Only, st.just(0))]
    return Tiling(tuple(draw(st.one_of(options)) for _ in ways), ways)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Tiling], list[Tiling], tuple[int, ...]]:
    ways = tuple(draw(st.lists(st.integers(2, 3), min_size=1, max_size=3)))
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    made = draw(st.lists(tilings(ways, len(shape), made=True), min_size=1, max_size=6, unique=True))
    owned = draw(st.lists(tilings(ways, len(shape), made=False), min_size=1, max_size=6, unique=True))
    return made, owned, shape


def missing_elements(needed: Boxes, owned: Boxes) -> int:
    """Elements that workers need and do not own, over all workers."""
    return int((needed.elements - needed.overlap(owned)).sum())


def redistribution_elements(made: Tiling, owned: Tiling, shape: tuple[int, ...]) -> int:
    """What one entry of the table counts, from who sends to whom."""
    target, source = owned.boxes(shape), made.boxes(shape)
    if not made.has_partial:
        return missing_elements(target, source)
    middle = reduced_boxes(made, owned, shape)
    arriving = (middle.cross_overlap(source) * contributors(made)).sum(axis=1)
    here = middle.overlap(source)
    return int((arriving - here).sum()) + missing_elements(target, middle)


@given(problems())
def test_the_table_is_the_sum_over_workers(problem: tuple[list[Tiling], list[Tiling], tuple[int, ...]]) -> None:
    made, owned, shape = problem
    table = redistribution_table(made, owned, shape)
    assert table.shape == (len(owned), len(made))
    for column, source in enumerate(made):
        for row, goal in enumerate(owned):
            assert table[row, column] == redistribution_elements(source, goal, shape), (str(source), str(goal))


@given(problems())
def test_contributions_are_counted_without_looking_at_them(
    problem: tuple[list[Tiling], list[Tiling], tuple[int, ...]],
) -> None:
    made, owned, shape = problem
    partial = [source for source in made if source.has_partial]
    assume(partial)
    for source in partial:
        for goal in owned:
            middle = reduced_boxes(source, goal, shape)
            met = (middle.cross_overlap(source.boxes(shape)) * contributors(source)).sum()
            groups = np.prod([w for p, w in zip(source.placements, source.ways, strict=True) if isinstance(p, Partial)])
            assert met == groups * middle.elements.sum()
    assert owned
