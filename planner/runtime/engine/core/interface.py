"""What runs a plan's workers, seen from outside: fill tiles, iterate, read tiles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np

from planner.artifacts.program import WorkerProgram
from planner.artifacts.worker_model import WorkerModel
from planner.graph.model import StatePair
from planner.runtime.engine.core.backend import Backend
from planner.runtime.engine.core.exchange import Exchange
from planner.runtime.engine.core.executor import Executor, Iteration
from planner.runtime.engine.core.transport import Transport
from planner.runtime.engine.gpu.cuda_changes import OnGpus
from planner.runtime.engine.mpi.world import World


class Engine(ABC):
    """The workers of one plan, started; a context manager that ends them."""

    programs: tuple[WorkerProgram, ...]
    arena_bytes: tuple[int, ...]
    """What each worker's arrays take."""
    staging_bytes: tuple[int, ...]
    """See ``Backend.staging_bytes``; of workers that share no memory, boxes on their way: where, on a GPU, they are
    staged, too."""
    on_gpus: OnGpus | None = None
    """What is known of the sessions; None on CPUs."""
    world: World | None = None
    """The ranks, if each worker is one; None: this process reaches all workers."""

    @property
    def reports(self) -> bool:
        """True if this process learns what the workers have done: of several ranks, rank 0."""
        return self.world is None or self.world.rank == 0

    @property
    def here(self) -> tuple[WorkerProgram, ...]:
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
        """Brings the collected buffers of some tensors to the memory where they are read."""

    @abstractmethod
    def iterate(self, *, timed: bool = False) -> Iteration:
        """One iteration of all workers.

        Args:
            timed: also measure every step.

        Raises:
            WorkerError: a worker failed; the engine can only be closed then.
        """

    @abstractmethod
    def advance(self) -> None:
        """The next state becomes the state: on each worker tile by tile, without communication."""

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

    def iterate(self, *, timed: bool = False) -> Iteration:
        """See ``Engine.iterate``."""
        return self.executor.iterate(timed=timed)

    def advance(self) -> None:
        """See ``Engine.advance``."""
        self.executor.advance()

    def close(self) -> None:
        """See ``Engine.close``."""
        self.executor.close()
        self._exchange.close()
