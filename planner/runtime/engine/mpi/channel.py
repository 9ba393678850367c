"""Sending arrays from one process to another, as a message-passing library does it: the few things that are needed.

``mpi_channel.py`` has the real one. Everything above it knows only this interface, and so runs in tests without the
library.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, NoReturn, TypeAlias

import numpy as np

Pending: TypeAlias = Callable[[], bool]
"""Asks a transfer, at no cost, whether it is done; asking also lets all transfers go on."""

ANYBODY: Final = -1
"""In place of a sender."""


class Channel(ABC):
    """One of several processes, called ranks, that send each other arrays.

    Of two arrays that one rank sends to another with one tag, the first arrives first; between tags there is no order.
    """

    rank: int
    """This process's number, from 0."""
    size: int
    """How many there are."""
    highest_tag: int

    @abstractmethod
    def send(self, content: np.ndarray, to: int, tag: int) -> Pending:
        """Begins to send a contiguous array of bytes, which must not change until that is done."""

    @abstractmethod
    def receive(self, content: np.ndarray, source: int, tag: int) -> Pending:
        """Begins to fill a contiguous array of bytes, which must not be read until that is done.

        Args:
            content: as long as what comes.
            source: a rank, or ``ANYBODY``.
            tag: of what is awaited.
        """

    @abstractmethod
    def abort(self, code: int) -> NoReturn:
        """Ends all ranks, and this one, with an exit code."""
