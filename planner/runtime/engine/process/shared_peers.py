"""Counts of workers that are processes of one machine: numbers in shared memory, and the kernel's futexes to wait on.

A process that must wait sleeps in the kernel until the count changes (``futex(2)``: it sleeps only if the number is
still the one that it has seen). Whoever announces a count that others wait for wakes them.

What a worker wrote before it announced a count must be seen by whoever has read the count. Python has no fence; on
x86-64 the processor keeps the order of stores, on others this file's engine is refused.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from typing import Final

import numpy as np

from planner.errors import UsageError
from planner.runtime.engine.core.peers import Peers

_FUTEX: Final = 202
"""The system call's number on x86-64."""
_WAIT: Final = 0
_WAKE: Final = 1
_ALL: Final = 2**31 - 1


def require_futexes() -> None:
    """Refuses a machine on which processes cannot wait for each other.

    Raises:
        UsageError: it is not Linux on x86-64.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise UsageError(
            f"--engine processes: it needs Linux on x86-64, and this is {sys.platform} on {platform.machine()}",
            hint="run with --engine local",
        )


class SharedPeers(Peers):
    """One worker's sight of the counts of all.

    Args:
        counts: a row of 32-bit integers per worker, in shared memory, of which the first is the worker's count.
        worker: whose sight.
    """

    def __init__(self, counts: np.ndarray, worker: int) -> None:
        assert counts.dtype == np.int32
        assert counts.strides[1] == counts.itemsize
        self._stride = counts.strides[0] // counts.itemsize
        # An element of a memoryview costs half of what one of an array does.
        self._counts = memoryview(counts.data).cast("B").cast("i")
        self._addresses = [ctypes.c_void_p(counts.ctypes.data + row * counts.strides[0]) for row in range(len(counts))]
        self._mine = worker * self._stride
        self._address = self._addresses[worker]
        self._call = ctypes.CDLL(None, use_errno=True).syscall

    def wait(self, peer: int, count: int) -> None:
        """See ``Peers.wait``. If the other one has died, this sleeps until the supervisor ends the process."""
        counts, place = self._counts, peer * self._stride
        while (seen := counts[place]) < count:
            self._call(_FUTEX, self._addresses[peer], _WAIT, seen, None, None, 0)

    def announce(self, count: int, *, is_awaited: bool) -> None:
        """See ``Peers.announce``."""
        self._counts[self._mine] = count
        if is_awaited:
            self._call(_FUTEX, self._address, _WAKE, _ALL, None, None, 0)
