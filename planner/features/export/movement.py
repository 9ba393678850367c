"""Movement of a tensor from its owners to its readers: by collectives, or box by box.

Collectives are taken where they move just the bytes that the plan counts. Everything else (halos, uneven parts, cuts
that change places along one dim) is sent box by box with ``ppermute``, which moves what is needed and no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from planner.algebra.region import Region
from planner.algebra.tiling import Reducer
from planner.features.export.held import Grid, Held, grid_of
from planner.graph.core.model import Shape
from planner.partition.ways import Round


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective, or a slice, along cuts that are axes of the mesh."""

    kind: str
    """``slice``, ``psum_scatter``, ``all_to_all``, ``psum``, ``pmax``, ``pmin`` or ``all_gather``."""
    cuts: tuple[int, ...]
    """The one that divides the dim first before the others."""
    dim: int = -1
    """Which dim is sliced, scattered or gathered; of an all-to-all, which is cut then. -1: all of it."""
    before: int = -1
    """Of an all-to-all, the dim that was cut."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Boxes of one shape, one at most from each worker and one at most to each."""

    shape: Shape
    pairs: tuple[tuple[int, int], ...]
    """Who sends to whom; () for what workers have themselves."""
    starts: tuple[Shape, ...]
    """By worker, where its box begins in what it holds; where it sends none, anywhere."""
    places: tuple[Shape, ...]
    """By worker, where the box goes."""
    takes: tuple[bool, ...]
    """By worker, whether a box arrives."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A tensor assembled box by box; boxes at the same place are joined by the reducer."""

    target: Held
    boxes: tuple[Sent, ...]
    reducer: Reducer | None = None


def moved_elements(movement: Sequence[Collective], before: Shape, ways: tuple[int, ...]) -> tuple[int, Shape]:
    """The elements that collectives move between workers, all together, and the shape of each worker's part then."""
    shape, moved, workers = list(before), 0, prod(ways)
    for collective in movement:
        size, count = prod(ways[cut] for cut in collective.cuts), prod(shape)
        if collective.kind == "slice":
            shape[collective.dim] //= size
        elif collective.kind == "psum_scatter":
            moved += workers * (count - count // size)
            shape[collective.dim] //= size
        elif collective.kind == "all_to_all":
            moved += workers * (count - count // size)
            shape[collective.dim] //= size
            shape[collective.before] *= size
        elif collective.kind == "all_gather":
            moved += workers * count * (size - 1)
            shape[collective.dim] *= size
        else:
            moved += 2 * (size - 1) * count * workers // size
    return moved, tuple(shape)


_JOINED_WHOLE: Mapping[Reducer, str] = {Reducer.SUM: "psum", Reducer.MAX: "pmax", Reducer.MIN: "pmin"}


def collectives_between(
    source: Held,
    target: Held,
    extents: Shape,
    ways: tuple[int, ...],
    partial: frozenset[int] = frozenset(),
    reducer: Reducer | None = None,
) -> tuple[Collective, ...] | None:
    """Collectives that bring a tensor into other parts; None if there are none that do just that.

    Args:
        source: what workers hold.
        target: what they are to hold.
        extents: of the tensor's index space.
        ways: of the cuts.
        partial: cuts whose groups hold partial results that are to be joined.
        reducer: how; None where nothing is joined.
    """
    if not source.is_even or not target.is_even:
        return None
    current, wanted = (grid_of(held.regions, ways, extents) for held in (source, target))
    if current is None or wanted is None:
        return None
    collectives = _chain(current, wanted, set(partial), reducer)
    if collectives is None:
        return None
    shape = list(source.frame)
    for collective in collectives:  # what is shared out must be whole
        size = prod(ways[cut] for cut in collective.cuts)
        if collective.kind in ("slice", "psum_scatter", "all_to_all"):
            if shape[collective.dim] % size:
                return None
            shape[collective.dim] //= size
        if collective.kind == "all_to_all":
            shape[collective.before] *= size
        if collective.kind == "all_gather":
            shape[collective.dim] *= size
    return collectives


def _chain(source: Grid, wanted: Grid, partial: set[int], reducer: Reducer | None) -> tuple[Collective, ...] | None:
    state = [list(cuts) for cuts in source]
    collectives: list[Collective] = []

    def next_cut(dim: int) -> int | None:
        """The cut by which a dim is to be divided next; None where it is not, or not yet."""
        have, want = state[dim], wanted[dim]
        if len(have) < len(want) and tuple(have) == want[: len(have)]:
            return want[len(have)]
        return None

    def divided(kind: str, dim: int, cut: int, before: int = -1) -> None:
        last = collectives[-1] if collectives else None
        if last is not None and kind != "all_to_all" and (last.kind, last.dim) == (kind, dim):
            collectives[-1] = replace(last, cuts=(*last.cuts, cut))
        else:
            collectives.append(Collective(kind, (cut,), dim, before))
        state[dim].append(cut)

    def one_more() -> bool:
        dims = range(len(state))
        for dim in dims:  # first what makes parts smaller for nothing
            cut = next_cut(dim)
            if cut is not None and cut not in partial and all(cut not in cuts for cuts in state):
                divided("slice", dim, cut)
                return True
        for dim in dims:
            cut = next_cut(dim)
            if cut in partial and reducer is Reducer.SUM:
                divided("psum_scatter", dim, cut)
                partial.remove(cut)
                return True
        for dim in dims:
            cut = next_cut(dim)
            for source_dim in dims:
                if source_dim != dim and cut is not None and state[source_dim][-1:] == [cut]:
                    state[source_dim].pop()
                    divided("all_to_all", dim, cut, source_dim)
                    return True
        return False

    seen = set[tuple[tuple[int, ...], ...]]()
    while one_more():
        layout = tuple(tuple(cuts) for cuts in state)
        if layout in seen:  # a diagonal: two dims are cut by one cut, and each takes it from the other
            return None
        seen.add(layout)
    if partial:
        if reducer is None or reducer not in _JOINED_WHOLE or any(cut in cuts for cut in partial for cuts in wanted):
            return None
        collectives.append(Collective(_JOINED_WHOLE[reducer], tuple(sorted(partial))))
    for dim, (have, want) in enumerate(zip(state, wanted, strict=True)):
        depth = len(want)
        if tuple(have[:depth]) != want:
            return None
        if len(have) > depth:
            collectives.append(Collective("all_gather", tuple(have[depth:]), dim))
    return tuple(collectives)


def exchanged(source: Held, target: Held, fetches: Round) -> Exchange:
    """A tensor assembled box by box.

    Args:
        source: what workers hold.
        target: what they are to hold.
        fetches: what they take from whom.
    """
    local_boxes: dict[Shape, dict[int, list[Region]]] = {}
    sent: list[tuple[int, int, Region]] = []
    for worker, mine in enumerate(fetches.boxes):
        for region, givers, _ in mine:
            for giver in givers:
                if giver == worker:
                    local_boxes.setdefault(region.shape, {}).setdefault(worker, []).append(region)
                else:
                    sent.append((giver, worker, region))
    boxes: list[Sent] = []
    for shape, by_worker in local_boxes.items():
        for number in range(max(len(regions) for regions in by_worker.values())):
            chosen = {worker: regions[number] for worker, regions in by_worker.items() if number < len(regions)}
            boxes.append(_sent(source, target, shape, {worker: worker for worker in chosen}, chosen, ()))
    workers = len(fetches.boxes)
    # Transfers over one distance are a shift, the usual pattern of halos and rings; none has two senders to a worker.
    sent.sort(key=lambda transfer: ((transfer[1] - transfer[0]) % workers, transfer[2].shape))
    rounds: list[tuple[Shape, dict[int, tuple[int, Region]]]] = []
    for giver, taker, region in sent:
        for shape, arriving in rounds:
            if (
                shape == region.shape
                and taker not in arriving
                and all(sender != giver for sender, _ in arriving.values())
            ):
                arriving[taker] = (giver, region)
                break
        else:
            rounds.append((region.shape, {taker: (giver, region)}))
    for shape, arriving in rounds:
        senders = {taker: giver for taker, (giver, _) in arriving.items()}
        pairs = tuple(sorted((giver, taker) for taker, giver in senders.items()))
        regions = {taker: region for taker, (_, region) in arriving.items()}
        boxes.append(_sent(source, target, shape, senders, regions, pairs))
    return Exchange(target, tuple(boxes), fetches.reducer)


def _sent(
    source: Held,
    target: Held,
    shape: Shape,
    givers: Mapping[int, int],
    regions: Mapping[int, Region],
    pairs: tuple[tuple[int, int], ...],
) -> Sent:
    """One round: by taker who gives, and which region."""
    workers = range(len(source.regions))
    starts = {giver: source.start(giver, regions[taker]) for taker, giver in givers.items()}
    places = {taker: target.start(taker, region) for taker, region in regions.items()}
    return Sent(
        shape,
        pairs,
        _filled(starts, workers),
        _filled(places, workers),
        tuple(worker in regions for worker in workers),
    )


def _filled(by_worker: Mapping[int, Shape], workers: range) -> tuple[Shape, ...]:
    """The value of each worker; one without a value gets the others', if these agree: then it need not vary."""
    first = next(iter(by_worker.values()))
    filler = first if all(value == first for value in by_worker.values()) else (0,) * len(first)
    return tuple(by_worker.get(worker, filler) for worker in workers)
