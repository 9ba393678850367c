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
    computed, owned = draw(_tilings(ways, len(shape), partial)), draw(_tilings(ways, len(shape)))
    return ways, shape, computed, owned


def _filled(held: Held, tensor: np.ndarray, workers: int) -> list[np.ndarray]:
    arrays = [np.zeros(held.frame, dtype=np.int64) for _ in range(workers)]
    for worker, region in enumerate(held.regions):
        arrays[worker][tuple(slice(0, size) for size in region.shape)] = tensor[
            region.within(Region.whole(tensor.shape))
        ]
    return arrays


def _simulated(collective: Collective, arrays: list[np.ndarray], ways: tuple[int, ...]) -> list[np.ndarray]:
    """What a collective of JAX does, with each worker's array in a list."""
    groups = coordinates(ways)
    number = np.zeros(len(groups), dtype=np.int64)
    for cut in collective.cuts:
        number = number * ways[cut] + groups[:, cut]
    kept_cuts = [cut for cut in range(len(ways)) if cut not in collective.cuts]
    results = []
    for worker in range(len(groups)):
        group = [peer for peer in range(len(groups)) if (groups[peer][kept_cuts] == groups[worker][kept_cuts]).all()]
        group.sort(key=lambda peer: number[peer])
        mine, size = int(number[worker]), len(group)
        if collective.kind == "slice":
            results.append(np.split(arrays[worker], size, collective.dim)[mine])
        elif collective.kind == "psum_scatter":
            results.append(np.split(sum(arrays[peer] for peer in group), size, collective.dim)[mine])
        elif collective.kind == "psum":
            results.append(sum(arrays[peer] for peer in group))
        elif collective.kind == "all_gather":
            results.append(np.concatenate([arrays[peer] for peer in group], collective.dim))
        else:
            parts = [np.split(arrays[peer], size, collective.dim)[mine] for peer in group]
            results.append(np.concatenate(parts, collective.before))
    return results


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
    tensor = np.arange(1, prod(shape) + 1).reshape(shape)
    source, target = Held.of(tuple(owned.boxes(shape))), Held.of(tuple(wanted.boxes(shape)))
    arrays, expected = _filled(source, tensor, prod(ways)), _filled(target, tensor, prod(ways))
    fetches = Ways(ways).read(source.regions, owned, target.regions)
    assembled, moved = _sent(exchanged(source, target, fetches), arrays)
    assert moved == fetches.moved_elements
    assert all((array == wanted_array).all() for array, wanted_array in zip(assembled, expected, strict=True))
    collectives = collectives_between(source, target, shape, ways)
    if collectives is not None:
        assert moved_elements(collectives, source.frame, ways)[0] >= fetches.moved_elements
        for collective in collectives:
            arrays = _simulated(collective, arrays, ways)
        assert all((array == wanted_array).all() for array, wanted_array in zip(arrays, expected, strict=True))


@given(_moves(partial=True))
def test_partial_results_are_joined_where_they_are_owned(
    move: tuple[tuple[int, ...], tuple[int, ...], Tiling, Tiling],
) -> None:
    ways, shape, made_as, owned = move
    tensor, workers = np.arange(1, prod(shape) + 1).reshape(shape), prod(ways)
    computed, target = Held.of(tuple(made_as.boxes(shape))), Held.of(tuple(owned.boxes(shape)))
    way = Ways(ways).returned((computed.regions,), made_as, target.regions, owned, shape)
    groups = prod(ways[cut] for cut in way.joined)
    arrays, expected = _filled(computed, tensor, workers), _filled(target, tensor * groups, workers)
    source, current, moved = computed, arrays, 0
    for fetches in way.rounds:
        held = Held.of(fetches.regions)
        current, elements = _sent(exchanged(source, held, fetches), current)
        source, moved = held, moved + elements
    assert moved == sum(fetches.moved_elements for fetches in way.rounds)
    assert all((array == wanted_array).all() for array, wanted_array in zip(current, expected, strict=True))
    reducer = Reducer.SUM if way.joined else None
    collectives = collectives_between(computed, target, shape, ways, frozenset(way.joined), reducer)
    if collectives is not None:
        assert moved_elements(collectives, computed.frame, ways)[0] >= moved
        for collective in collectives:
            arrays = _simulated(collective, arrays, ways)
        assert all((array == wanted_array).all() for array, wanted_array in zip(arrays, expected, strict=True))
