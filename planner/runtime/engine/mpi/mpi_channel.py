"""MPI: the real channel between ranks, by mpi4py, which is imported when somebody asks for it."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Final, NoReturn

import numpy as np

from planner.errors import UsageError
from planner.runtime.engine.mpi.channel import ANYBODY, Channel, Pending
from planner.runtime.engine.mpi.world import World

_INSTALL: Final = "pip install mpi4py mpich, or mpi4py alone beside the MPI of the machine"
_LAUNCH: Final = "mpiexec -n WORKERS tofu run PLAN --engine mpi"
_LAUNCHERS: Final = (
    ("torchrun", "WORLD_SIZE", "RANK", f"torchrun starts no MPI: write {_LAUNCH}"),
    (
        "srun",
        "SLURM_NTASKS",
        "SLURM_PROCID",
        "let srun start MPI's ranks (srun --mpi=pmix or --mpi=pmi2; srun --mpi=list shows which there are), with an "
        f"MPI that was built for it; or write {_LAUNCH}",
    ),
)
"""What may have started several processes that know nothing of each other: its variables, and what to do."""
_RANKS: Final = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "RANK")
"""Where launchers say which process this is."""
_READING_SECONDS: Final = 0.2
"""A launcher that ends all drops what it has not yet read."""


class MpiChannel(Channel):
    """A communicator of mpi4py.

    Args:
        mpi: the module ``mpi4py.MPI``.
        communicator: nobody else's.
    """

    def __init__(self, mpi: Any, communicator: Any) -> None:
        self._mpi, self._communicator = mpi, communicator
        self.rank, self.size = communicator.Get_rank(), communicator.Get_size()
        self.highest_tag = communicator.Get_attr(mpi.TAG_UB)

    def send(self, content: np.ndarray, to: int, tag: int) -> Pending:
        """See ``Channel.send``."""
        return self._communicator.Isend([content, self._mpi.BYTE], dest=to, tag=tag).Test  # type: ignore[no-any-return]

    def receive(self, content: np.ndarray, source: int, tag: int) -> Pending:
        """See ``Channel.receive``."""
        place = self._mpi.ANY_SOURCE if source == ANYBODY else source
        return self._communicator.Irecv([content, self._mpi.BYTE], source=place, tag=tag).Test  # type: ignore[no-any-return]

    def abort(self, code: int) -> NoReturn:
        """See ``Channel.abort``."""
        time.sleep(_READING_SECONDS)
        _silence(2)  # what the library has to say of it, the user has been told
        self._mpi.COMM_WORLD.Abort(code)  # of its duplicate, MPICH would end this process alone
        os._exit(code)


@contextlib.contextmanager
def joined(patience_seconds: float, notice: Callable[[str], None]) -> Iterator[World]:
    """The ranks that were launched with this process; when it is left by an error, all of them end.

    Rank 0 speaks: what the others would print is dropped, but for what ends them.

    Args:
        patience_seconds: how long a worker may wait for another.
        notice: told for whom a long wait is.

    Raises:
        UsageError: there is no mpi4py, or no MPI.
    """
    channel = _channel()
    if channel.size == 1:
        _refuse_alone()
    stderr = os.dup(2)
    if channel.rank:
        _silence(1)
        _silence(2)

    def say(text: str) -> None:
        os.write(stderr, text.encode(errors="replace"))

    with World(channel, socket.gethostname(), patience_seconds, say, notice) as world:
        yield world


def _channel() -> MpiChannel:
    module = _mpi()
    return MpiChannel(module, module.COMM_WORLD.Dup())


def _mpi() -> ModuleType:
    try:
        from mpi4py import MPI
    except ImportError:
        _let_first_speak()
        raise UsageError("--engine mpi needs mpi4py, which is not installed", hint=_INSTALL) from None
    except RuntimeError as error:  # mpi4py's word for a library that does not load
        _let_first_speak()
        lines = tuple(line for line in str(error).splitlines() if line.strip())
        raise UsageError("--engine mpi: mpi4py finds no MPI library", facts=lines[:3], hint=_INSTALL) from None
    return MPI


def _refuse_alone() -> None:
    """Refuses a process that is one of several without MPI; says nothing where it was started alone.

    Raises:
        UsageError: with what to do.
    """
    for name, size, rank, hint in _LAUNCHERS:
        if rank in os.environ and os.environ.get(size, "1") != "1":
            _let_first_speak()
            raise UsageError(
                f"--engine mpi: {name} has started {os.environ[size]} processes, of which MPI knows nothing", hint=hint
            )


def _let_first_speak() -> None:
    """Drops what this process would print, if a launcher says that it is not the first."""
    if any(os.environ.get(name, "0") != "0" for name in _RANKS):
        _silence(2)


def _silence(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
