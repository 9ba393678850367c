"""Movements hold, element by element, what they are to hold, and move what is counted."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.algebra.region import Region
from planner.algebra.tiling import Partial, Placement, Reducer, Replicate, Shard, Tiling, coordinates
from planner.features.export.held import Held
from planner.features.export.movement import Collective, Exchange, collectives_between, exchanged, moved_elements
from planner.partition.ways import Ways

_WAYS = st.lists(st.sampled_from([2, 3]), min_size=1, max_size=3).map(tuple)


def _tilings(ways: tuple[int, ...], rank: int, partial: bool = False) -> st.SearchStrategy[Tiling]:
    placements: list[Placement] = [Replicate(), *(Shard(dim) for dim in range(rank))]
    placements += [Partial()] if partial else []
    return st.tuples(*(st.sampled_from(placements) for _ in ways)).map(lambda chosen: Tiling(chosen, ways))


@st.composite
def _moves(draw: st.DrawFn, partial: bool = False) -> tuple[tuple[int, ...], tuple[int, ...], Tiling, Tiling]:
    ways = draw(_WAYS)
    shape = tuple(draw(st.sampled_from([12, 24, 36, 7, 10])) for _ in range(draw(st.integers(1, 2))))
    made, owned = draw(_tilings(ways, len(shape), partial)), draw(_tilings(ways, len(shape)))
    return ways, shape, made, owned


def _filled(held: Held, whole: np.ndarray, workers: int) -> list[np.ndarray]:
    arrays = [np.zeros(held.frame, dtype=np.int64) for _ in range(workers)]
    for worker, region in enumerate(held.regions):
        arrays[worker][tuple(slice(0, size) for size in region.shape)] = whole[region.within(Region.whole(whole.shape))]
    return arrays


def _simulated(one: Collective, arrays: list[np.ndarray], ways: tuple[int, ...]) -> list[np.ndarray]:
    """What a collective of JAX does, with each worker's array in a list."""
    groups = coordinates(ways)
    number = np.zeros(len(groups), dtype=np.int64)
    for cut in one.cuts:
        number = number * ways[cut] + groups[:, cut]
    others = [cut for cut in range(len(ways)) if cut not in one.cuts]
    made = []
    for worker in range(len(groups)):
        group = [other for other in range(len(groups)) if (groups[other][others] == groups[worker][others]).all()]
        group.sort(key=lambda other: number[other])
        mine, size = int(number[worker]), len(group)
        if one.kind == "slice":
            made.append(np.split(arrays[worker], size, one.dim)[mine])
        elif one.kind == "psum_scatter":
            made.append(np.split(sum(arrays[other] for other in group), size, one.dim)[mine])
        elif one.kind == "psum":
            made.append(sum(arrays[other] for other in group))
        elif one.kind == "all_gather":
            made.append(np.concatenate([arrays[other] for other in group], one.dim))
        else:
            parts = [np.split(arrays[other], size, one.dim)[mine] for other in group]
            made.append(np.concatenate(parts, one.before))
    return made


def _sent(exchange: Exchange, source: list[np.ndarray]) -> tuple[list[np.ndarray], int]:
    arrays = [np.zeros(exchange.target.frame, dtype=np.int64) for _ in source]
    moved = 0
    for sent in exchange.boxes:
        pairs = sent.pairs or tuple((worker, worker) for worker, takes in enumerate(sent.takes) if takes)
        assert len({giver for giver, _ in pairs}) == len({taker for _, taker in pairs}) == len(pairs)
        for giver, taker in pairs:
            box = tuple(slice(at, at + size) for at, size in zip(sent.starts[giver], sent.shape, strict=True))
            place = tuple(slice(at, at + size) for at, size in zip(sent.places[taker], sent.shape, strict=True))
            arrays[taker][place] += source[giver][box]
            moved += prod(sent.shape) * (giver != taker)
    return arrays, moved


@given(_moves())
def test_what_is_read_is_what_is_needed(move: tuple[tuple[int, ...], tuple[int, ...], Tiling, Tiling]) -> None:
    ways, shape, owned, wanted = move
    whole = np.arange(1, prod(shape) + 1).reshape(shape)
    source, target = Held.of(tuple(owned.boxes(shape))), Held.of(tuple(wanted.boxes(shape)))
    arrays, expected = _filled(source, whole, prod(ways)), _filled(target, whole, prod(ways))
    taken = Ways(ways).read(source.regions, owned, target.regions)
    made, moved = _sent(exchanged(source, target, taken), arrays)
    assert moved == taken.moved_elements
    assert all((one == other).all() for one, other in zip(made, expected, strict=True))
    found = collectives_between(source, target, shape, ways)
    if found is not None:
        assert moved_elements(found, source.frame, ways)[0] >= taken.moved_elements
        for one in found:
            arrays = _simulated(one, arrays, ways)
        assert all((one == other).all() for one, other in zip(arrays, expected, strict=True))


@given(_moves(partial=True))
def test_partial_results_are_joined_where_they_are_owned(
    move: tuple[tuple[int, ...], tuple[int, ...], Tiling, Tiling],
) -> None:
    ways, shape, made_as, owned = move
    whole, workers = np.arange(1, prod(shape) + 1).reshape(shape), prod(ways)
    made, target = Held.of(tuple(made_as.boxes(shape))), Held.of(tuple(owned.boxes(shape)))
    way = Ways(ways).returned((made.regions,), made_as, target.regions, owned, shape)
    groups = prod(ways[cut] for cut in way.joined)
    arrays, expected = _filled(made, whole, workers), _filled(target, whole * groups, workers)
    source, current, moved = made, arrays, 0
    for taken in way.rounds:
        held = Held.of(taken.regions)
        current, more = _sent(exchanged(source, held, taken), current)
        source, moved = held, moved + more
    assert moved == sum(one.moved_elements for one in way.rounds)
    assert all((one == other).all() for one, other in zip(current, expected, strict=True))
    reducer = Reducer.SUM if way.joined else None
    found = collectives_between(made, target, shape, ways, frozenset(way.joined), reducer)
    if found is not None:
        assert moved_elements(found, made.frame, ways)[0] >= moved
        for one in found:
            arrays = _simulated(one, arrays, ways)
        assert all((one == other).all() for one, other in zip(arrays, expected, strict=True))
