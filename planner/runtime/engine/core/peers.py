"""Waits of a worker's steps for those of its peers.

Each worker counts the steps that it has done in this iteration, and a step knows which count of which worker it needs
(``planner.artifacts.waits``). What a count is made of depends on where the workers are: here they are threads of one
process; ``shared_peers.py`` has processes that share memory, ``messages`` have machines that share none.

A worker that has copied the next state over its state has done 0 of them, and before that it has not begun.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Final

NOT_BEGUN: Final = -1
"""The count of a worker before its iteration."""


class StoppedError(Exception):
    """Another worker has failed."""


class Peers(ABC):
    """The other workers, as one of them meets them. All of it is called in that worker's thread."""

    def begin(self) -> None:  # noqa: B027 -- most have nothing to do
        """Begins the worker's iteration, before its first step."""

    @abstractmethod
    def wait(self, peer: int, count: int) -> None:
        """Returns when another worker has done so many of its steps.

        Raises:
            StoppedError: a worker has failed.
        """

    @abstractmethod
    def announce(self, count: int, *, is_awaited: bool) -> None:
        """This worker has done so many of its steps.

        Args:
            count: of steps.
            is_awaited: some worker waits for just this count.
        """

    def end(self) -> None:  # noqa: B027
        """Ends the worker's iteration, after its last step."""


class ThreadCounts:
    """The counts of workers that are threads of this process.

    A count that is there already costs one comparison, and one that nobody waits for yet costs one more: a thread that
    must wait hangs a lock of its own on the other's list, and whoever reaches the count releases it.

    Args:
        workers: how many.
    """

    def __init__(self, workers: int) -> None:
        self.done = [NOT_BEGUN] * workers
        self.waiting: tuple[list[tuple[int, threading.Lock]], ...] = tuple([] for _ in range(workers))
        """By the worker that is waited for: the count, and the lock that holds the one who waits."""
        self.is_stopped = False

    def reset(self) -> None:
        """Resets the counts before an iteration, when no worker runs."""
        self.done[:] = [NOT_BEGUN] * len(self.done)

    def stop(self) -> None:
        """Ends every wait, those to come included."""
        self.is_stopped = True
        for waiting in self.waiting:
            _release(waiting, None)


class ThreadPeers(Peers):
    """One worker's sight of ``ThreadCounts``."""

    def __init__(self, counts: ThreadCounts, worker: int) -> None:
        self._counts, self._worker = counts, worker
        self._done, self._waiting = counts.done, counts.waiting

    def wait(self, peer: int, count: int) -> None:
        """See ``Peers.wait``."""
        if self._done[peer] < count:
            gate = threading.Lock()
            gate.acquire()
            entry = (count, gate)
            self._waiting[peer].append(entry)
            # Asked again: whoever announces looks at the list after the count, and whoever waits the other way round.
            if self._done[peer] < count and not self._counts.is_stopped:
                gate.acquire()
            else:
                _is_dropped(self._waiting[peer], entry)
        if self._counts.is_stopped:
            raise StoppedError

    def announce(self, count: int, *, is_awaited: bool) -> None:
        """See ``Peers.announce``."""
        self._done[self._worker] = count
        waiting = self._waiting[self._worker]
        if waiting:
            _release(waiting, count)


def _release(waiting: list[tuple[int, threading.Lock]], count: int | None) -> None:
    """Lets those go on who wait for at most a count; None: all."""
    for entry in tuple(waiting):
        if (count is None or entry[0] <= count) and _is_dropped(waiting, entry):
            entry[1].release()


def _is_dropped(waiting: list[tuple[int, threading.Lock]], entry: tuple[int, threading.Lock]) -> bool:
    """Takes an entry off a list; False if another thread was faster."""
    try:
        waiting.remove(entry)
    except ValueError:
        return False
    return True
