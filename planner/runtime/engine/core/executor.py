"""The workers of a process: a thread each, bound once, run many times. One that is alone has its caller's thread, since
to wake another takes as long as many a small step.

A worker runs its steps in order (``worker_executor.py``). A fetch waits until every buffer that it reads has been
written in this iteration, and a step that writes where another buffer lay waits until nobody reads that one any more
(``peers.py``). An iteration ends when all workers of the process have ended it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from planner.artifacts.on_gpus import OnGpus
from planner.artifacts.program import Fetch, Segment, Source, WorkerProgram
from planner.artifacts.waits import Waits, awaited_counts
from planner.artifacts.worker_model import WorkerModel
from planner.errors import WorkerError
from planner.graph.core.model import StatePair
from planner.progress import Progress, silent
from planner.runtime.engine.core.backend import Backend, CpuBackend
from planner.runtime.engine.core.check import check_programs
from planner.runtime.engine.core.exchange import Exchange
from planner.runtime.engine.core.peers import Peers, StoppedError, ThreadCounts, ThreadPeers
from planner.runtime.engine.core.transport import Transport
from planner.runtime.engine.core.worker_executor import Timing, WorkerExecutor, failure, state_buffers

_PATIENCE_SECONDS: Final = 1.0
"""How long the others may take to stop after one has failed."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """The result of one iteration."""

    moved_bytes: tuple[tuple[int, ...], ...]
    """Per worker, for each of its fetches in order: the bytes that it took from other workers."""
    seconds: float
    timings: tuple[tuple[Timing, ...], ...] = ()
    """If they were asked for: per worker, for each of its steps, the seconds that it waited and that it took."""


@dataclass(frozen=True)
class Orders:
    """The facts of all workers that a worker must know, its own included."""

    programs: tuple[WorkerProgram, ...]
    """Of the others no more than the buffers that it reads need be there."""
    waits: tuple[Waits, ...]
    awaited: tuple[frozenset[int], ...]
    """Of each worker the counts of its steps for which another one waits."""
    owners: tuple[frozenset[int], ...]
    """Of each worker those that own states that it fetches, and copy their next values there between iterations."""


def orders_of(programs: Sequence[WorkerProgram], state: Sequence[StatePair]) -> Orders:
    """Checks programs, and finds out who waits for whom.

    Raises:
        ModelError: they do not fit together.
    """
    waits = check_programs(programs, state)
    return Orders(tuple(programs), waits, awaited_counts(waits), _owners_of_states(programs, state))


def _owners_of_states(programs: Sequence[WorkerProgram], state: Sequence[StatePair]) -> tuple[frozenset[int], ...]:
    """See ``Orders.owners``."""
    copied = {Source(program.worker, name) for program in programs for name, _ in state_buffers(program, state)}
    fetched = (
        {source for step in program.steps if isinstance(step, Fetch) for source in step.sources} for program in programs
    )
    return tuple(frozenset(source.worker for source in copied & sources) for sources in fetched)


class Executor:
    """Runs workers of a plan as threads of this process.

    Args:
        models: of the workers of this process, in order.
        exchange: memory of loaded and collected buffers.
        state: states and their next values.
        orders: what there is to know of all workers; None: the models are all workers.
        peers: how a worker waits for the others, by its number; None: all of them are here.
        transport: how arrays get from worker to worker, on CPUs.
        is_shared: sessions share one arena (see ``SessionMaker``).
        backend: where the workers compute; None: on CPUs.
        libraries: of custom operators, on CPUs.
        progress: told whose sessions are made.

    Raises:
        ModelError: the programs do not fit together.
        WorkerError: a segment's session cannot be made.
    """

    def __init__(
        self,
        models: Sequence[WorkerModel],
        exchange: Exchange,
        state: Sequence[StatePair] = (),
        *,
        orders: Orders | None = None,
        peers: Callable[[int], Peers] | None = None,
        transport: Transport | None = None,
        is_shared: bool = False,
        backend: Backend | None = None,
        libraries: Sequence[Path] = (),
        progress: Progress = silent,
    ) -> None:
        orders = orders or orders_of([model.program for model in models], state)
        self._exchange = exchange
        segments = sum(isinstance(step, Segment) for model in models for step in model.program.steps)
        self._backend = backend or CpuBackend(
            exchange, len(orders.programs), segments, transport=transport, is_shared=is_shared, libraries=libraries
        )
        self._counts = ThreadCounts(len(orders.programs))
        self._workers: list[WorkerExecutor] = []
        for model in models:
            worker = model.program.worker
            progress(f"making sessions: worker {worker + 1} of {len(orders.programs)}")
            mine = peers(worker) if peers is not None else ThreadPeers(self._counts, worker)
            self._workers.append(
                WorkerExecutor(
                    model,
                    orders.programs,
                    orders.waits[worker],
                    orders.awaited[worker],
                    exchange,
                    state,
                    self._backend,
                    mine,
                    owners=orders.owners[worker],
                )
            )
        self._failure: WorkerError | None = None
        self._failing = threading.Lock()
        self._commands: list[queue.SimpleQueue[_Command | None]] = []
        self._outcomes: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        # A worker that is alone runs in the caller's thread, which spares a handover in every iteration.
        for index, executor in enumerate(self._workers if len(self._workers) > 1 else ()):
            self._commands.append(queue.SimpleQueue())
            thread = threading.Thread(target=self._serve, args=(index,), name=f"worker {executor.worker}", daemon=True)
            self._threads.append(thread)
            thread.start()

    @property
    def session_count(self) -> int:
        """Distinct sessions."""
        return self._backend.session_count

    @property
    def staging_bytes(self) -> tuple[int, ...]:
        """See ``Backend.staging_bytes``."""
        return self._backend.staging_bytes

    def on_gpus(self) -> OnGpus | None:
        """See ``Backend.on_gpus``."""
        return self._backend.on_gpus()

    @property
    def thread_idents(self) -> tuple[int, ...]:
        """The thread of each worker of this process, as ``threading.get_ident`` gives it to the one that iterates."""
        return tuple(thread.ident or 0 for thread in self._threads) or (threading.get_ident(),)

    def iterate(self, *, timed: bool = False, advances: bool = False) -> Iteration:
        """One iteration of all workers of this process, from what is in the loaded buffers now.

        Args:
            timed: also measure every step.
            advances: the next state of the iteration before becomes the state first.

        Raises:
            WorkerError: a worker failed; the first one that did is named, and the others have been stopped.
        """
        self._counts.reset()
        moved: list[tuple[int, ...]] = [()] * len(self._workers)
        timings: list[tuple[Timing, ...]] = [()] * len(self._workers)

        def run(index: int) -> None:
            if timed:
                moved[index], timings[index] = self._workers[index].iterate_timed(advances=advances)
            else:
                moved[index] = self._workers[index].iterate(advances=advances)

        start = time.perf_counter()
        self._run_all(run)
        seconds = time.perf_counter() - start
        return Iteration(tuple(moved), seconds, tuple(timings) if timed else ())

    def push(self, names: Collection[str] | None = None) -> None:
        """Takes what was written to the exchange for the loaded buffers of some tensors; None: of all."""
        for executor in self._workers:
            executor.push(names)

    def pull(self, names: Collection[str]) -> None:
        """Brings the collected buffers of some tensors to the exchange."""
        for executor in self._workers:
            executor.pull(names)

    def close(self) -> None:
        """Ends the threads."""
        for commands in self._commands:
            commands.put(None)
        for thread in self._threads:
            thread.join(_PATIENCE_SECONDS)

    def _run_all(self, command: _Command) -> None:
        self._raise_failure()
        if not self._threads:
            self._backend.enter(self._workers[0].worker)
            self._do(0, command)
        for commands in self._commands:
            commands.put(command)
        missing = set(range(len(self._commands)))
        try:
            while missing:
                missing.discard(self._outcomes.get(timeout=None if self._failure is None else _PATIENCE_SECONDS))
        except queue.Empty:
            pass  # a worker that hangs in a kernel: the failure is told all the same
        except BaseException:
            self._counts.stop()
            raise
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _serve(self, index: int) -> None:
        self._backend.enter(self._workers[index].worker)
        while (command := self._commands[index].get()) is not None:
            self._do(index, command)
            self._outcomes.put(index)

    def _do(self, index: int, command: _Command) -> None:
        try:
            command(index)
        except StoppedError:
            pass
        except Exception as error:  # noqa: BLE001 -- whatever stops a worker is told to the user with its name
            self._fail(self._workers[index], error)

    def _fail(self, executor: WorkerExecutor, error: Exception) -> None:
        number = int(self._exchange.whereabouts[executor.worker])
        steps = executor.program.steps
        step = steps[number] if 0 <= number < len(steps) else Segment("between iterations", "", (), (), ())
        with self._failing:
            if self._failure is None:
                self._failure = failure(executor.worker, step, f"{type(error).__name__}: {error}")
        self._counts.stop()


_Command: TypeAlias = Callable[[int], None]
"""Called with a worker's place among those of this process."""
