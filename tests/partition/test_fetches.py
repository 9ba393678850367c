"""Who takes what from whom: the nearest that has it, by the cuts or on the machine, and never another amount."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from planner import opdefs
from planner.algebra.region import Region
from planner.algebra.tiling import Partial, Replicate, Shard, Tiling
from planner.artifacts.program import Fetch, Piece, Program
from planner.artifacts.waits import joined_waits, stuck
from planner.features.zoo.models import mlp
from planner.graph.core.model import DType
from planner.machine.topology_file import Device, DeviceGraph, DeviceLink
from planner.partition import ways
from planner.partition.build import partition, unplaced
from planner.partition.ways import Box, Contributions, Holders, Way, Ways, nearest_first
from planner.planning.limit.trial import Trial
from planner.planning.machines import time_of
from planner.planning.sources import from_the_nearest
from planner.search.decision import Decision
from planner.search.model.problem import Problem

DEVICE = Device(2**40, ((DType.FLOAT32, 1e12),), 100e9)


def ring(count: int) -> DeviceGraph:
    """Devices in a circle, with one slow link."""
    links = (DeviceLink((one, (one + 1) % count), 1e9 if one == 1 else 10e9) for one in range(count))
    return DeviceGraph("ring", (DEVICE,) * count, tuple(links))


def further(program: Program, apart: list[list[float]]) -> list[tuple[int, Piece]]:
    """Copies that a worker takes from one worker although a nearer one holds a part of the same buffer.

    Who is given a tile itself, as its tensor is brought from where it is made to where it is owned, gives none of it.
    """
    given_to = {
        (worker.worker, step.target) for worker in program.workers for step in worker.steps if isinstance(step, Fetch)
    }
    found = []
    for worker in program.workers:
        for step in worker.steps:
            for piece in step.pieces if isinstance(step, Fetch) else ():
                (source, *others) = piece.sources
                for nearer in program.workers if not others else ():
                    if apart[worker.worker][nearer.worker] < apart[worker.worker][source.worker]:
                        held = nearer.buffers.get(source.buffer)
                        if step.target == source.buffer and (nearer.worker, source.buffer) in given_to:
                            held = None
                        if held is not None and held.region.intersect(piece.region).elements:
                            found.append((worker.worker, piece))
    return found


@given(st.lists(st.sampled_from([2, 3]), max_size=3), st.integers(0, 2**16), st.booleans())
def test_all_workers_come_in_order_and_the_reader_first(ways: list[int], seed: int, is_known: bool) -> None:
    total = int(np.prod(ways, dtype=int))
    rng = np.random.default_rng(seed)
    worker = int(rng.integers(total))
    apart = rng.integers(1, 4, total).astype(float)
    apart[worker] = 0.0
    order = nearest_first(worker, ways, apart.tolist() if is_known else ())
    assert sorted(order) == list(range(total))
    assert order[0] == worker
    if is_known:
        assert (np.diff(apart[list(order)]) >= 0).all()
    else:
        inner = ways[-1] if ways else 1
        assert {other // inner for other in order[:inner]} == {worker // inner}


@pytest.mark.parametrize("ways", [(), (5,), (3, 2), (2, 1, 4), (7, 3)])
def test_nearer_workers_part_at_inner_cuts_and_follow_the_reader_in_turn(ways: tuple[int, ...]) -> None:
    """Held against the definition, which takes a distance from each worker to each."""
    total = int(np.prod(ways, dtype=int))
    sizes = [total // int(np.prod(ways[:depth], dtype=int)) for depth in range(len(ways) + 1)]
    rng = np.random.default_rng(0)
    assert total > 0
    for worker in range(total):

        def place(other: int, worker: int = worker) -> tuple[int, int]:
            return -sum(worker // size == other // size for size in sizes), (other - worker) % total

        expected = sorted(range(total), key=place)
        assert nearest_first(worker, ways) == tuple(expected)
        apart = rng.integers(0, 3, total).astype(float).tolist()
        apart[worker] = -1.0
        assert nearest_first(worker, ways, apart) == tuple(sorted(expected, key=apart.__getitem__))


def test_of_many_holders_those_are_looked_at_that_hold_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    tiles = tuple(Region((8 * worker, 0), (8 * worker + 8, 4)) for worker in range(100))
    box = Region((12, 1), (20, 3))
    assert Holders([tiles]).of(box) == {1: [(tiles[1], 0)], 2: [(tiles[2], 0)]}
    found = Holders([tiles]).copied(box, range(100))
    monkeypatch.setattr(ways, "_MANY_BOXES", 1_000)
    assert len(Holders([tiles]).of(box)) == 100
    assert Holders([tiles]).copied(box, range(100)) == found


def test_of_many_partial_results_those_are_joined_that_have_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    makers = tuple(Region((8 * (worker // 2),), (8 * (worker // 2) + 8,)) for worker in range(200))
    box = Region((12,), (20,))
    found = Contributions([makers], range(199, -1, -1)).to(box)
    assert found == [Box(Region((12,), (16,)), (2, 3)), Box(Region((16,), (20,)), (4, 5))]
    monkeypatch.setattr(ways, "_MANY_BOXES", 1_000)
    assert Contributions([makers], range(200)).to(box) == found


def test_of_two_owners_the_nearer_gives() -> None:
    """S(0)/2 R/2: workers 2 and 3 have the second half. By the cuts both are equally near to worker 0."""
    half = Region((4,), (8,))
    owners = Holders([(Region((0,), (4,)), Region((0,), (0,)), half, half)])
    assert owners.copied(half, nearest_first(0, (2, 2))) == (Box(half, (2,)),)
    around = (0.0, 1.0, 2.0, 1.0)
    assert owners.copied(half, nearest_first(0, (2, 2), around)) == (Box(half, (3,)),)


@given(st.lists(st.sampled_from([2, 3]), min_size=1, max_size=2).map(tuple), st.data())
def test_what_is_made_in_parts_comes_home_as_what_is_made_at_once(cuts: tuple[int, ...], data: st.DataObject) -> None:
    """The same elements from the same workers, whether contributions are joined part by part or together."""
    shape = (data.draw(st.sampled_from([12, 7])), data.draw(st.sampled_from([12, 10])))
    made_as, owned = (
        Tiling(data.draw(st.tuples(*(st.sampled_from(others) for _ in cuts))), cuts)
        for others in ([Partial(), Replicate(), Shard(0), Shard(1)], [Replicate(), Shard(0), Shard(1)])
    )
    tiles, made = tuple(owned.boxes(shape)), tuple(made_as.boxes(shape))
    parts = [tuple(one.intersect(Region((lo, 0), (lo + 4, 12))) for one in made) for lo in (0, 4, 8)]
    whole = Ways(cuts).returned([made], made_as, tiles, owned, shape)
    for is_by_part in (False, True):
        way = Ways(cuts).returned(parts, made_as, tiles, owned, shape, is_by_part=is_by_part)
        assert way.joined == whole.joined == tuple(np.flatnonzero([str(one) == "P" for one in made_as.placements]))
        assert (moved(way, shape) == moved(whole, shape)).all()


def moved(way: Way, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """What crosses in joins and in copies, [joins or copies, taker, giver, ...]; nothing does twice."""
    found = np.zeros((2, *(len(way.rounds[0].regions) if way.rounds else 1,) * 2, *shape), np.bool_)
    for taken in way.rounds:
        for taker, boxes in enumerate(taken.boxes):
            for box in boxes:
                for giver in set(box.givers) - {taker}:
                    there = found[int(taken.reducer is None), taker, giver][box.region.within(Region.whole(shape))]
                    assert not there.any()
                    there[...] = True
    assert found.sum() == sum(taken.moved_elements for taken in way.rounds)
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("workers", [4, 6])
def test_distances_change_sources_and_no_bytes(
    random_plan: Callable[[Problem, int, int], Decision], workers: int, seed: int
) -> None:
    graph = mlp(2, 12, 16)
    ops = opdefs.standard().bind_all(graph)
    plan = random_plan(Problem(graph, ops, workers), workers, seed)
    apart = np.random.default_rng(seed).random((workers, workers))
    np.fill_diagonal(apart, 0.0)
    default, near = partition(graph, ops, plan).program, unplaced(graph, ops, plan, apart.tolist()).placed().program
    assert near.predicted_bytes == default.predicted_bytes == plan.moved_bytes
    for one, other in zip(near.workers, default.workers, strict=True):
        moved = [[step.predicted_bytes for step in each.steps if isinstance(step, Fetch)] for each in (one, other)]
        assert sum(moved[0]) == sum(moved[1])
    assert not further(near, apart.tolist())
    assert not stuck(joined_waits(near.workers))
    assert near == unplaced(graph, ops, plan, apart.tolist()).placed().program


def test_on_a_machine_no_plan_gets_slower_and_some_get_faster(
    random_plan: Callable[[Problem, int, int], Decision],
) -> None:
    graph, workers, machine = mlp(2, 48, 64), 8, ring(8)
    ops = opdefs.standard().bind_all(graph)
    problem = Problem(graph, ops, workers)
    gained = []
    for seed in range(4):
        plan = random_plan(problem, workers, seed)
        before = Trial(plan)
        after = from_the_nearest(before, machine, None)
        times = [time_of(one, machine) for one in (before, after)]
        assert after.partitioned.program.predicted_bytes == plan.moved_bytes
        assert (after is before) == (times[1].estimated_seconds == times[0].estimated_seconds)
        gained.append(times[0].estimated_seconds - times[1].estimated_seconds)
        assert from_the_nearest(before, machine, (0,) * workers) is before, "there is no memory for anything"
    assert min(gained) >= 0
    assert max(gained) > 0
