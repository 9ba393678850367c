"""Ranks: what they tell each other, how long they wait, and that one failure is one message."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fake_channel import AbortedError, PostOffice
from planner.errors import UsageError, WorkerError
from planner.runtime.engine.mpi.message_peers import FIRST_TAG
from planner.runtime.engine.mpi.ranks import check_equal, check_hosts, check_size, ranks_of
from planner.runtime.engine.mpi.world import World

SECONDS = 120.0


class Ranks:
    """Ranks in threads; what they say, and what becomes of each."""

    def __init__(self, size: int, patience_seconds: float = SECONDS) -> None:
        self.office = PostOffice(size, seed=1)
        self.patience_seconds = patience_seconds
        self.said: list[str] = []
        self.noticed: list[str] = []
        self.results: dict[int, Any] = {}

    def run(self, work: Callable[[World], Any]) -> None:
        """Does work on all ranks; an office that is aborted ends them."""

        def one(channel: Any) -> None:
            try:
                with World(
                    channel, f"h{channel.rank}", self.patience_seconds, self.said.append, self.noticed.append
                ) as world:
                    world.meet()
                    self.results[channel.rank] = work(world)
            except AbortedError:
                pass

        threads = [threading.Thread(target=one, args=(channel,), daemon=True) for channel in self.office.channels()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        assert not any(thread.is_alive() for thread in threads), "ranks do not end"


def test_ranks_learn_hosts_and_values() -> None:
    ranks = Ranks(3)

    def work(world: World) -> Any:
        found = world.gather({"rank": world.rank}, "to count")
        array = np.arange(4.0)
        if world.rank == 1:
            world.send(array.reshape(2, 2)[:, 1], 0, "to take")
        if world.rank == 0:
            place = np.zeros(2)
            world.receive(place, 1, "for it")
            assert place.tolist() == [1.0, 3.0]
        return world.hosts, found, world.spread(f"from {world.rank}", "to tell")

    ranks.run(work)
    hosts = ("h0", "h1", "h2")
    assert ranks.results[0] == (hosts, [{"rank": 0}, {"rank": 1}, {"rank": 2}], "from 0")
    assert ranks.results[1] == ranks.results[2] == (hosts, None, "from 0")
    assert (ranks.office.code, ranks.said) == (None, [])


@pytest.mark.parametrize("guilty", [0, 2])
def test_a_failure_is_told_once_and_ends_all(guilty: int) -> None:
    ranks = Ranks(3)

    def work(world: World) -> None:
        if world.rank == guilty:
            raise WorkerError("worker 2 failed", facts=("a fact",), hint="a hint")

    ranks.run(work)
    assert ranks.said == [f"error: worker 2 failed\n  on rank {guilty}, host h{guilty}\n  a fact\nhint: a hint\n"]
    assert ranks.office.code == 3


def test_all_ranks_that_refuse_the_same_say_it_once() -> None:
    ranks = Ranks(4)

    def work(world: World) -> None:
        raise UsageError("no such file")

    ranks.run(work)
    assert ranks.said == ["error: no such file\n"]
    assert ranks.office.code == 2


def test_a_bug_names_its_rank() -> None:
    ranks = Ranks(2)

    def work(world: World) -> None:
        if world.rank:
            raise KeyError("x")

    ranks.run(work)
    assert ranks.office.code == 4
    (said,) = ranks.said
    assert said.startswith("error: a bug in tofu: KeyError: 'x'\n  on rank 1, host h1\n")


def test_a_long_failure_is_cut_and_told() -> None:
    ranks = Ranks(2)

    def work(world: World) -> None:
        if world.rank:
            raise WorkerError("é" * 100_000)

    ranks.run(work)
    (said,) = ranks.said
    assert said.startswith("error: éé")
    assert len(said) == 6000


@pytest.mark.parametrize("silent", [0, 1, 3])
def test_who_does_not_answer_is_named(silent: int) -> None:
    ranks = Ranks(4, patience_seconds=1)

    def work(world: World) -> None:
        if world.rank == silent:
            while ranks.office.code is None:  # as if stopped: it does not even look
                time.sleep(0.01)
            return
        world.place = lambda: f"in fetch {world.rank}"
        transfer = world.channel.receive(np.zeros(1, np.uint8), silent, FIRST_TAG)
        world.finish(transfer, silent)

    ranks.run(work)
    (said,) = ranks.said
    assert ranks.office.code == 3
    assert said.startswith(f"error: nothing has been heard of worker {silent} (rank {silent} on h{silent}) for 1 s\n")
    facts = [line for line in said.splitlines() if line.startswith("  ")]
    waiting = [
        f"  worker {w} (rank {w} on h{w}) waits for worker {silent} in fetch {w}" for w in range(4) if w != silent
    ]
    assert facts == (waiting if silent else waiting[:1])
    assert "--patience" in said


def test_who_waits_but_briefly_is_not_blamed() -> None:
    """Worker 1 waits for worker 2, which does not answer, and worker 0 has waited for worker 1 for longer."""
    ranks = Ranks(3, patience_seconds=2)

    def work(world: World) -> None:
        world.place = lambda: f"in fetch {world.rank}"
        if world.rank == 1:
            time.sleep(0.2)
        while world.rank == 2 and ranks.office.code is None:
            time.sleep(0.01)
        transfer = world.channel.receive(np.zeros(1, np.uint8), world.rank + 1, FIRST_TAG)
        world.finish(transfer, world.rank + 1)

    ranks.run(work)
    (said,) = ranks.said
    assert said.startswith("error: nothing has been heard of worker 2 (rank 2 on h2) for 2 s\n")
    assert "worker 0 (rank 0 on h0) waits for worker 1 in fetch 0" in said
    assert "worker 1 (rank 1 on h1) waits for worker 2 in fetch 1" in said


def test_rank_0_may_take_its_time() -> None:
    """It judges or writes while the others wait; and it says for whom it waits itself."""
    ranks = Ranks(2, patience_seconds=0.1)
    told = "waiting for rank 1 on h1 to load"

    def work(world: World) -> None:
        if world.rank == 0:
            time.sleep(0.5)
        world.spread(None, "to judge")
        while world.rank == 1 and told not in ranks.noticed:
            time.sleep(0.01)
        world.gather(None, "to load")

    ranks.run(work)
    assert (ranks.office.code, ranks.said) == (None, [])
    assert told in ranks.noticed


def test_who_waits_takes_no_processor() -> None:
    ranks = Ranks(2)

    def work(world: World) -> float:
        if world.rank == 0:
            time.sleep(1.0)
        before = time.thread_time()
        world.spread(None, "to judge")
        return time.thread_time() - before

    ranks.run(work)
    assert ranks.results[1] < 0.3, "seconds of a processor, in one of waiting"


def test_a_step_that_does_not_end_elsewhere_is_not_waited_for() -> None:
    ranks = Ranks(2, patience_seconds=0.2)

    def work(world: World) -> None:
        while world.rank and ranks.office.code is None:
            time.sleep(0.01)
        world.gather(None, "to end a step", is_patient=True)

    ranks.run(work)
    (said,) = ranks.said
    assert "nothing has been heard of worker 1 (rank 1 on h1) for 0.2 s\n" in said
    assert "worker 0 (rank 0 on h0) waits for worker 1 to end a step" in said


def test_workers_run_where_their_devices_are() -> None:
    assert ranks_of((2, 0, 3, 1), 4) == (2, 0, 3, 1)
    assert ranks_of(None, 3) == (0, 1, 2)
    assert ranks_of((4, 5), 2) == (0, 1)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_as_many_ranks_as_workers(size: int) -> None:
    check_size(4, 4, "plan")
    with pytest.raises(UsageError) as refusal:
        check_size(size, 4, "plan")
    assert "4 workers" in refusal.value.what
    assert refusal.value.hint.endswith("mpiexec -n 4 tofu run plan --engine mpi")


@pytest.mark.parametrize("hosts", ["aaaaaaaa", "aaaabbbb", "aabbccdd", "abcdefgh", "ddccbbaa"])
def test_hosts_that_follow_the_cuts(hosts: str) -> None:
    check_hosts(hosts, (2, 2, 2), "plan")


@pytest.mark.parametrize(
    ("hosts", "cuts", "says"),
    [
        ("abababab", (2, 2, 2), "mpiexec -n 8 -ppn 4 tofu run plan --engine mpi"),
        ("aabbaabb", (2, 2, 2), "-ppn 4"),
        ("aaaaabbb", (2, 2, 2), "-ppn 4"),
        ("aabbcc", (2, 3), "-ppn 3"),
        ("aaabbb", (3, 2), "-ppn 6"),
    ],
)
def test_hosts_that_do_not_are_told_the_line(hosts: str, cuts: tuple[int, ...], says: str) -> None:
    with pytest.raises(UsageError) as refusal:
        check_hosts(hosts, cuts, "plan")
    assert says in refusal.value.hint or (says == "-ppn 6" and "-n 6 tofu" in refusal.value.hint)


def test_what_differs_is_named_with_its_rank() -> None:
    check_equal([{"tofu": "1"}, {"tofu": "1"}], "ab")
    with pytest.raises(UsageError) as refusal:
        check_equal([{"tofu": "1", "plan.json": "a" * 64}, {"tofu": "2", "plan.json": "b" * 64}, {"tofu": "1"}], "aab")
    assert refusal.value.facts == (
        "rank 1 on a: plan.json bbbbbbbbbbbb; rank 0: aaaaaaaaaaaa",
        "rank 1 on a: tofu 2; rank 0: 1",
        "rank 2 on b: plan.json none; rank 0: aaaaaaaaaaaa",
    )
