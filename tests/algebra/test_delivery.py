"""What moves, against the collectives' closed forms and against sets of elements."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from planner.algebra.delivery import contributors, reduced_boxes, reduction, shared_out
from planner.algebra.region import Region
from planner.algebra.tiling import Partial, Replicate, Shard, Tiling, coordinates
from redistribution import redistribution_table

SIZE = 24


def moved(made: str, owned: str, ways: tuple[int, ...], shape: tuple[int, ...] = (SIZE,)) -> int:
    return int(redistribution_table([Tiling.parse(made, ways)], [Tiling.parse(owned, ways)], shape)[0, 0])


@given(st.integers(2, 8))
def test_collectives_of_one_group(group: int) -> None:
    assert moved("P", "S(0)", (group,)) == (group - 1) * SIZE
    assert moved("S(0)", "R", (group,)) == (group - 1) * SIZE
    assert moved("P", "R", (group,)) == 2 * (group - 1) * SIZE
    assert moved("R", "S(0)", (group,)) == 0
    assert moved("P", "R", (group,), ()) == 2 * (group - 1)


def test_collectives_of_nested_groups() -> None:
    assert moved("P", "R", (2, 2, 2)) == 2 * 7 * SIZE
    assert moved("P/2 S(0)/2", "R/2 S(0)/2", (2, 2)) == 2 * SIZE
    assert moved("P/2 R/2", "S(0)/2 R/2", (2, 2)) == 2 * SIZE
    assert moved("S(0)/2 P/2", "S(0)/2 S(0)/2", (2, 2)) == SIZE


def test_the_worked_example_of_soybean_counts_one_less_than_n() -> None:
    """SoyBean, section 2.2: 5 weights of 300x300 float32, reduced and broadcast among 16: 57.6 MB there."""
    assert 5 * 4 * moved("P", "R", (2, 2, 2, 2), (300, 300)) == 54_000_000


placements = st.one_of(
    st.builds(Shard, st.integers(0, 1), st.just(1), st.integers(0, 1), st.just(())), st.just(Replicate())
)
made_placements = st.one_of(placements, st.just(Partial()))


@st.composite
def redistributions(draw: st.DrawFn) -> tuple[Tiling, Tiling, tuple[int, int]]:
    ways = draw(st.lists(st.integers(2, 3), min_size=1, max_size=3).map(tuple))
    shape = draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    made = Tiling(tuple(draw(made_placements) for _ in ways), ways)
    owned = Tiling(tuple(draw(placements) for _ in ways), ways)
    return made, owned, shape


def elements(region: Region) -> set[tuple[int, ...]]:
    return set(itertools.product(*(range(lo, hi) for lo, hi in zip(region.lo, region.hi, strict=True))))


@given(redistributions())
def test_bytes_are_those_of_a_simulation_element_by_element(case: tuple[Tiling, Tiling, tuple[int, int]]) -> None:
    made, owned, shape = case
    made_at = [elements(region) for region in made.boxes(shape)]
    owned_at = [elements(region) for region in owned.boxes(shape)]
    count = 0
    holds = made_at
    if made.has_partial:
        joined = contributors(made)
        holds = [elements(region) for region in reduced_boxes(made, owned, shape)]
        for worker, part in enumerate(holds):
            for element in part:
                sources = [w for w in range(made.workers) if joined[worker, w] and element in made_at[w]]
                assert sources, "somebody contributes to every element"
                count += sum(source != worker for source in sources)
        assert set().union(*holds) == set().union(*made_at)
    for worker, part in enumerate(owned_at):
        count += len(part - holds[worker])
        assert part <= set().union(*holds)
    assert redistribution_table([made], [owned], shape)[0, 0] == count


@given(redistributions())
def test_tiles_are_shared_out_along_the_longest_dim_cut_by_cut(case: tuple[Tiling, Tiling, tuple[int, int]]) -> None:
    """Worker by worker: the dim is that of which the smallest tile has the most; too few elements go to the first."""
    made, owned, shape = case
    base, cuts = reduction(made, owned)
    boxes = base.boxes(shape)
    lo, hi = boxes.lo.copy(), boxes.hi.copy()
    groups = coordinates(base.ways)
    for cut in cuts:
        shortest = (hi - lo).min(axis=0).tolist()
        dim = shortest.index(max(shortest))
        for worker, group in enumerate(groups[:, cut].tolist()):
            first, last = int(lo[worker, dim]), int(hi[worker, dim])
            if max(shortest) >= base.ways[cut]:
                size, rest = divmod(last - first, base.ways[cut])
                lo[worker, dim] = first + group * size + min(group, rest)
                hi[worker, dim] = first + (group + 1) * size + min(group + 1, rest)
            elif group:
                hi[worker, 0] = lo[worker, 0]
    shared = shared_out(base, cuts, shape)
    assert [shared.region(worker) for worker in range(len(lo))] == [
        Region(tuple(lo[worker].tolist()), tuple(hi[worker].tolist())) for worker in range(len(lo))
    ]


@given(redistributions())
def test_every_partial_result_is_counted_once_for_each_element(case: tuple[Tiling, Tiling, tuple[int, int]]) -> None:
    made, _, shape = case
    groups = 1
    for placement, ways in zip(made.placements, made.ways, strict=True):
        groups *= ways if isinstance(placement, Partial) else 1
    joined = contributors(made)
    regions = [elements(region) for region in made.boxes(shape)]
    assert len(regions) == made.workers
    for worker in range(made.workers):
        for element in itertools.product(*map(range, shape)):
            assert sum(joined[worker, w] and element in regions[w] for w in range(made.workers)) == groups
