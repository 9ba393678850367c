"""Workers that wait for each other's counts."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.runtime.engine.core.peers import StoppedError, ThreadCounts, ThreadPeers

SECONDS = 120.0


def started(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_count_that_is_there_is_not_waited_for() -> None:
    counts = ThreadCounts(2)
    ThreadPeers(counts, 1).announce(3, is_awaited=False)
    ThreadPeers(counts, 0).wait(1, 3)
    assert counts.waiting == ([], [])


@given(st.integers(2, 5), st.integers(1, 40))
def test_whoever_waits_goes_on_when_the_count_is_there(workers: int, steps: int) -> None:
    """A ring of threads: each waits before each step for the same step of its neighbour, but for the first one."""
    counts = ThreadCounts(workers)
    order: list[tuple[int, int]] = []

    def work(worker: int) -> None:
        peers = ThreadPeers(counts, worker)
        for step in range(1, steps + 1):
            if worker:
                peers.wait(worker - 1, step)
            elif step > 1:
                peers.wait(workers - 1, step - 1)
            order.append((step, worker))
            peers.announce(step, is_awaited=True)

    threads = [started(lambda worker=worker: work(worker)) for worker in range(workers)]  # type: ignore[misc]
    for thread in threads:
        thread.join(SECONDS)
    assert order == [(step, worker) for step in range(1, steps + 1) for worker in range(workers)]


@pytest.mark.parametrize("is_late", [False, True], ids=["who waits already", "who comes later"])
def test_a_stop_ends_every_wait(is_late: bool) -> None:
    counts = ThreadCounts(2)
    stopped = threading.Event()

    def work() -> None:
        with pytest.raises(StoppedError):
            ThreadPeers(counts, 0).wait(1, 1)
        stopped.set()

    if is_late:
        counts.stop()
        started(work)
    else:
        thread = started(work)
        while not counts.waiting[1] and thread.is_alive():
            pass
        counts.stop()
    assert stopped.wait(SECONDS)
