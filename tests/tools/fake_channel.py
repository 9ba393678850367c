"""A channel between threads of one process that delays what is sent, and lets it overtake, at random.

It keeps what MPI promises and nothing more: of two arrays between two ranks with one tag, the first arrives first. An
array is read when it arrives, not when it is sent, so that memory which is used again too early arrives wrong.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from planner.runtime.engine.mpi.channel import ANYBODY, Channel, Pending


class AbortedError(BaseException):
    """A rank has ended all; nobody catches it by mistake."""

    def __init__(self, code: int) -> None:
        super().__init__(f"all ranks end with {code}")
        self.code = code


@dataclass(eq=False)
class _Transfer:
    content: np.ndarray
    delay: int
    """How often somebody must ask until it may arrive."""
    is_done: bool = False


class PostOffice:
    """What is on its way between the ranks.

    Args:
        size: how many ranks.
        seed: of the delays.
        longest: delay, in questions that ranks ask.
    """

    def __init__(self, size: int, seed: int = 0, longest: int = 40) -> None:
        self.size = size
        self.code: int | None = None
        """With which somebody has ended all."""
        self.arrived = 0
        self._rng = np.random.default_rng(seed)
        self._longest = longest
        self._lock = threading.Lock()
        self._sent: dict[tuple[int, int, int], deque[_Transfer]] = defaultdict(deque)
        """By sender, reader and tag."""
        self._awaited: dict[tuple[int, int, int], deque[_Transfer]] = defaultdict(deque)

    def channels(self) -> list[FakeChannel]:
        return [FakeChannel(self, rank) for rank in range(self.size)]

    def post(self, sender: int, reader: int, tag: int, content: np.ndarray, *, is_sent: bool) -> Pending:
        with self._lock:
            transfer = _Transfer(content, int(self._rng.integers(self._longest + 1)) if is_sent else 0)
            (self._sent if is_sent else self._awaited)[sender, reader, tag].append(transfer)
        return lambda: self._ask(transfer)

    def _ask(self, transfer: _Transfer) -> bool:
        if self.code is not None:
            raise AbortedError(self.code)
        with self._lock:
            routes = list(self._sent)
            for route in self._rng.permutation(len(routes)).tolist():
                self._deliver(*routes[route])
            return transfer.is_done

    def _deliver(self, sender: int, reader: int, tag: int) -> None:
        sent = self._sent[sender, reader, tag]
        for transfer in sent:
            transfer.delay -= 1
        while sent and sent[0].delay <= 0:
            awaited = self._awaited[sender, reader, tag] or self._awaited[ANYBODY, reader, tag]
            if not awaited:
                return
            place, content = awaited.popleft(), sent.popleft()
            assert place.content.nbytes == content.content.nbytes, "an array of another length arrives"
            np.copyto(place.content, content.content)
            place.is_done = content.is_done = True
            self.arrived += 1


class FakeChannel(Channel):
    """One rank's end of a ``PostOffice``."""

    def __init__(self, office: PostOffice, rank: int, highest_tag: int = 32767) -> None:
        self.rank, self.size, self.highest_tag = rank, office.size, highest_tag
        self._office = office

    def send(self, content: np.ndarray, to: int, tag: int) -> Pending:
        """See ``Channel.send``."""
        assert content.flags.c_contiguous
        assert content.dtype == np.uint8
        return self._office.post(self.rank, to, tag, content, is_sent=True)

    def receive(self, content: np.ndarray, source: int, tag: int) -> Pending:
        """See ``Channel.receive``."""
        assert content.flags.c_contiguous
        assert content.dtype == np.uint8
        return self._office.post(source, self.rank, tag, content, is_sent=False)

    def abort(self, code: int) -> NoReturn:
        """See ``Channel.abort``."""
        if self._office.code is None:
            self._office.code = code
        raise AbortedError(self._office.code)
