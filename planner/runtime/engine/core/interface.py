"""The interface of engines: fill tiles, iterate, read tiles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np

from planner.algebra.region import Region
from planner.artifacts.on_gpus import OnGpus
from planner.artifacts.program import WorkerProgram
from planner.artifacts.worker_model import WorkerModel
from planner.graph.core.model import StatePair
from planner.runtime.engine.core.backend import Backend
from planner.runtime.engine.core.exchange import Exchange
from planner.runtime.engine.core.executor import Executor, Iteration
from planner.runtime.engine.core.sessions import threads_of
from planner.runtime.engine.core.transport import Transport

Source: TypeAlias = Callable[[str, Region], np.ndarray]
"""Gives a region of a tensor, of the region's shape."""


class Engine(ABC):
    """The workers of one plan, started; a context manager that ends them.

    Where several processes run a plan, each has an engine, and all are asked the same things in the same order. What is
    said here of one process holds of an engine that reaches all workers by itself.
    """

    programs: tuple[WorkerProgram, ...]
    arena_bytes: tuple[int, ...]
    """What each worker's arrays take."""
    staging_bytes: tuple[int, ...]
    """See ``Backend.staging_bytes``; of workers that share no memory, boxes on their way: where, on a GPU, they are
    staged, too."""
    on_gpus: OnGpus | None = None
    """What is known of the sessions; None on CPUs."""
    threads: int = 0
    """Of each worker, for one op; 0 on GPUs."""
    reports: bool = True
    """True if this process learns what the workers have done: of several processes, one."""

    @cached_property
    def tiles(self) -> Mapping[str, Sequence[tuple[int, str]]]:
        """The collected buffers that hold a part of each tensor: worker and name, by worker."""
        tiles: dict[str, list[tuple[int, str]]] = {}
        for program in self.programs:
            for name in program.collected:
                tiles.setdefault(program.buffers[name].tensor, []).append((program.worker, name))
        return tiles

    @property
    def local_programs(self) -> tuple[WorkerProgram, ...]:
        """The workers whose memory this process fills."""
        return self.programs

    @abstractmethod
    def array(self, worker: int, buffer: str) -> np.ndarray:
        """The memory of a loaded buffer (to be filled) or of a collected one (to be read), between iterations."""

    @abstractmethod
    def push(self, names: Collection[str] | None = None) -> None:
        """Takes what was written to the memory of the loaded buffers of some tensors; None: of all."""

    @abstractmethod
    def pull(self, names: Collection[str]) -> None:
        """Brings the collected buffers of some tensors, of the workers here, to the memory where they are read."""

    def collect(self, names: Sequence[str]) -> Iterator[Sequence[str]]:
        """Brings the collected buffers of some tensors, of all workers, to where the engine reports.

        Yields:
            the tensors that can be read now, and until the next are asked for.
        """
        self.pull(names)
        yield names

    def fill(self, source: Source, names: Collection[str] | None = None) -> None:
        """Fills the loaded buffers of the workers here, each with its region of a tensor; None: of all tensors."""
        for program in self.local_programs:
            for name in program.loaded:
                buffer = program.buffers[name]
                if names is None or buffer.tensor in names:
                    part = source(buffer.tensor, buffer.region)
                    np.copyto(self.array(program.worker, name), part.reshape(buffer.shape))
        self.push(names)

    def hand_out(self, source: Source, names: Sequence[str]) -> None:
        """Fills the loaded buffers of some tensors on all workers, from where the engine reports."""
        self.fill(source, names)

    def agree(self, step: int, seed: int) -> None:  # noqa: B027 -- one process agrees with itself
        """All processes are ready, and begin with the same step.

        Raises:
            UsageError: some see another checkpoint.
        """

    def spread(self, value: Any, purpose: str, *, is_patient: bool = False) -> Any:
        """Every process gets a value that JSON has, from the one that reports.

        Args:
            value: of any JSON kind, where the engine reports.
            purpose: what for, in words, for those who wait.
            is_patient: they wait only as long as the patience says.
        """
        return value

    def gather(self, value: Any, purpose: str) -> list[Any]:
        """The values of all processes, where the engine reports; nothing elsewhere. See ``spread``."""
        return [value]

    @abstractmethod
    def iterate(self, *, timed: bool = False, advances: bool = False, wanted: Sequence[str] = ()) -> Iteration:
        """One iteration of all workers.

        Args:
            timed: also measure every step.
            advances: the next state of the iteration before becomes the state first: on each worker tile by tile,
                without communication.
            wanted: tensors that will be collected, so that an engine can bring them with its answer.

        Raises:
            WorkerError: a worker failed; the engine can only be closed then.
        """

    @abstractmethod
    def close(self) -> None:
        """Ends the workers."""

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class InProcessEngine(Engine):
    """Workers as threads of this very process: for tests and debuggers. A crash of one is a crash of all.

    Args:
        models: one per worker, in order.
        state: states and their next values.
        transport: how arrays get from worker to worker.
        make_backend: where they compute, on an exchange of tiles; None: on CPUs.
        libraries: of custom operators, on CPUs.
    """

    def __init__(
        self,
        models: Sequence[WorkerModel],
        state: Sequence[StatePair] = (),
        *,
        transport: Transport | None = None,
        make_backend: Callable[[Exchange], Backend] | None = None,
        libraries: Sequence[Path] = (),
    ) -> None:
        self.programs = tuple(model.program for model in models)
        self._exchange = Exchange(self.programs)
        self.arena_bytes = self._exchange.arena_bytes
        backend = make_backend(self._exchange) if make_backend is not None else None
        self.threads = threads_of(len(models)) if backend is None else 0
        self.executor = Executor(
            models, self._exchange, state, transport=transport, backend=backend, libraries=libraries
        )
        self.staging_bytes = self.executor.staging_bytes

    def array(self, worker: int, buffer: str) -> np.ndarray:
        """See ``Engine.array``."""
        return self._exchange.array(worker, buffer)

    def push(self, names: Collection[str] | None = None) -> None:
        """See ``Engine.push``."""
        self.executor.push(names)

    def pull(self, names: Collection[str]) -> None:
        """See ``Engine.pull``."""
        self.executor.pull(names)

    def iterate(self, *, timed: bool = False, advances: bool = False, wanted: Sequence[str] = ()) -> Iteration:
        """See ``Engine.iterate``."""
        return self.executor.iterate(timed=timed, advances=advances)

    def close(self) -> None:
        """See ``Engine.close``."""
        self.executor.close()
        self._exchange.close()
