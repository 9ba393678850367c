"""All workers of a plan in one process: a thread each, bound once, run many times.

A worker runs its steps in order. A fetch waits until every buffer that it reads has been written in this iteration, and
a step that writes where another buffer lay waits until nobody reads that one any more: each worker counts the steps
that it has done, and a step knows which count of which worker it needs (``planner.artifacts.waits``). An iteration ends
when all workers have ended it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from planner.artifacts.program import Fetch, Segment, Source, Step, WorkerProgram
from planner.artifacts.waits import Waits
from planner.artifacts.worker_model import WorkerModel
from planner.errors import WorkerError
from planner.graph.model import StatePair
from planner.progress import Progress, silent
from planner.runtime.engine.backend import Backend, CpuBackend
from planner.runtime.engine.check import check_programs, describe
from planner.runtime.engine.exchange import IDLE, Exchange
from planner.runtime.engine.transport import Tile, Transport

_PATIENCE_SECONDS: Final = 1.0
"""How long the others may take to stop after one has failed."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """What one iteration did."""

    moved_bytes: tuple[tuple[int, ...], ...]
    """Per worker, for each of its fetches in order: the bytes that it took from other workers."""
    seconds: float
    timings: tuple[tuple[tuple[float, float], ...], ...] = ()
    """If they were asked for: per worker, for each of its steps, the seconds that it waited and that it took."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a worker stopped."""

    worker: int
    step: Step
    cause: str

    def error(self) -> WorkerError:
        """The failure as the user is told."""
        return WorkerError(f"worker {self.worker} failed in {describe(self.step)}", facts=(self.cause,))


class _StoppedError(Exception):
    """Another worker has failed."""


class _Progress:
    """How far each worker is in this iteration."""

    def __init__(self, workers: int) -> None:
        self._done = [0] * workers
        self._changed = [threading.Condition() for _ in range(workers)]
        self._is_stopped = False

    def reset(self) -> None:
        self._done = [0] * len(self._done)

    def announce(self, worker: int, count: int, *, is_awaited: bool) -> None:
        self._done[worker] = count
        if is_awaited:
            with self._changed[worker]:
                self._changed[worker].notify_all()

    def wait(self, worker: int, count: int) -> None:
        if self._done[worker] >= count and not self._is_stopped:
            return
        with self._changed[worker]:
            while self._done[worker] < count and not self._is_stopped:
                self._changed[worker].wait()
        if self._is_stopped:
            raise _StoppedError

    def stop(self) -> None:
        self._is_stopped = True
        for changed in self._changed:
            with changed:
                changed.notify_all()


@dataclass(frozen=True, slots=True, eq=False)
class _Action:
    """A step, ready to run."""

    run: Callable[[], int]
    """Returns the bytes that it took from other workers; 0 for a segment."""
    waits: tuple[tuple[int, int], ...]
    """Other workers, and how many steps each must have done."""
    is_awaited: bool
    """True if another worker waits for it."""
    is_fetch: bool


class Executor:
    """Runs the workers of a plan as threads of this process.

    Args:
        models: one per worker, in order.
        exchange: memory of loaded and collected buffers.
        state: states and their next values.
        transport: how arrays get from worker to worker, on CPUs.
        is_shared: sessions share one thread pool and one arena (see ``SessionMaker``).
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
        transport: Transport | None = None,
        is_shared: bool = False,
        backend: Backend | None = None,
        libraries: Sequence[Path] = (),
        progress: Progress = silent,
    ) -> None:
        self._programs = tuple(model.program for model in models)
        waits = check_programs(self._programs, state)
        self._exchange = exchange
        self._backend = backend or CpuBackend(
            exchange, len(models), transport=transport, is_shared=is_shared, libraries=libraries
        )
        self._progress = _Progress(len(models))
        self._arrays = [self._backend.arrays(model) for model in models]
        awaited = frozenset((other, count) for steps in waits for wanted in steps for other, count in wanted.items())
        self._actions: list[tuple[_Action, ...]] = []
        for worker, (model, mine) in enumerate(zip(models, waits, strict=True), start=1):
            progress(f"making sessions: worker {worker} of {len(models)}")
            self._actions.append(self._prepare(model, mine, awaited))
        self._pairs = [state_buffers(program, state) for program in self._programs]
        self._failure: Failure | None = None
        self._failing = threading.Lock()
        self._commands: list[queue.SimpleQueue[Callable[[int], tuple[int, ...]] | None]] = []
        self._outcomes: queue.SimpleQueue[tuple[int, tuple[int, ...]]] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        for worker in range(len(models)):
            self._commands.append(queue.SimpleQueue())
            thread = threading.Thread(target=self._serve, args=(worker,), name=f"worker {worker}", daemon=True)
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

    @property
    def thread_idents(self) -> tuple[int, ...]:
        """The thread of each worker, as ``threading.get_ident`` gives it."""
        return tuple(thread.ident or 0 for thread in self._threads)

    def iterate(self, *, timed: bool = False) -> Iteration:
        """One iteration of all workers, from what is in the loaded buffers now.

        Args:
            timed: also measure every step.

        Raises:
            WorkerError: a worker failed; the first one that did is named, and the others have been stopped.
        """
        self._progress.reset()
        self._timings: list[tuple[tuple[float, float], ...]] = [()] * len(self._programs)
        start = time.perf_counter()
        moved = self._all(self._iterate_timed if timed else self._iterate)
        seconds = time.perf_counter() - start
        return Iteration(moved, seconds, tuple(self._timings) if timed else ())

    def advance(self) -> None:
        """The next state becomes the state: each worker copies its own tiles."""
        self._all(self._advance)

    def push(self, names: Collection[str] | None = None) -> None:
        """Takes what was written to the exchange for the loaded buffers of some tensors; None: of all."""
        for program in self._programs:
            wanted = [name for name in program.loaded if names is None or program.buffers[name].tensor in names]
            self._backend.push(program.worker, wanted)

    def pull(self, names: Collection[str]) -> None:
        """Brings the collected buffers of some tensors to the exchange."""
        for program in self._programs:
            wanted = [name for name in program.collected if program.buffers[name].tensor in names]
            self._backend.pull(program.worker, wanted)

    def close(self) -> None:
        """Ends the threads."""
        for commands in self._commands:
            commands.put(None)
        for thread in self._threads:
            thread.join(_PATIENCE_SECONDS)

    def _all(self, command: Callable[[int], tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
        self._raise_failure()
        for commands in self._commands:
            commands.put(command)
        found: dict[int, tuple[int, ...]] = {}
        try:
            while len(found) < len(self._commands):
                worker, result = self._outcomes.get(timeout=None if self._failure is None else _PATIENCE_SECONDS)
                found[worker] = result
        except queue.Empty:
            pass  # a worker that hangs in a kernel: the failure is told all the same
        except BaseException:
            self._progress.stop()
            raise
        self._raise_failure()
        return tuple(found[worker] for worker in range(len(self._commands)))

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure.error()

    def _serve(self, worker: int) -> None:
        self._backend.enter(worker)
        while (command := self._commands[worker].get()) is not None:
            result: tuple[int, ...] = ()
            try:
                result = command(worker)
            except _StoppedError:
                pass
            except Exception as error:  # noqa: BLE001 -- whatever stops a worker is told to the user with its name
                self._fail(worker, error)
            self._outcomes.put((worker, result))

    def _fail(self, worker: int, error: Exception) -> None:
        number = int(self._exchange.whereabouts[worker])
        steps = self._programs[worker].steps
        step = steps[number] if 0 <= number < len(steps) else Segment("between iterations", "", (), (), ())
        with self._failing:
            if self._failure is None:
                self._failure = Failure(worker, step, f"{type(error).__name__}: {error}")
        self._progress.stop()

    def _iterate(self, worker: int) -> tuple[int, ...]:
        whereabouts, progress, backend = self._exchange.whereabouts, self._progress, self._backend
        moved = []
        for number, action in enumerate(self._actions[worker]):
            whereabouts[worker] = number
            for other, count in action.waits:
                progress.wait(other, count)
                backend.wait(worker, other, count)
            taken = action.run()
            if action.is_fetch:
                moved.append(taken)
            if action.is_awaited:
                backend.done(worker, number + 1)
            progress.announce(worker, number + 1, is_awaited=action.is_awaited)
        backend.end(worker)
        whereabouts[worker] = IDLE
        return tuple(moved)

    def _iterate_timed(self, worker: int) -> tuple[int, ...]:
        whereabouts, progress, backend = self._exchange.whereabouts, self._progress, self._backend
        moved = []
        timings = []
        for number, action in enumerate(self._actions[worker]):
            whereabouts[worker] = number
            start = time.perf_counter()
            for other, count in action.waits:
                progress.wait(other, count)
                backend.wait(worker, other, count)
            ready = time.perf_counter()
            taken = action.run()
            timings.append((ready - start, time.perf_counter() - ready))
            if action.is_fetch:
                moved.append(taken)
            if action.is_awaited:
                backend.done(worker, number + 1)
            progress.announce(worker, number + 1, is_awaited=action.is_awaited)
        backend.end(worker)
        whereabouts[worker] = IDLE
        self._timings[worker] = tuple(timings)
        return tuple(moved)

    def _advance(self, worker: int) -> tuple[int, ...]:
        for current, following in self._pairs[worker]:
            self._backend.copy(self._arrays[worker][current], self._arrays[worker][following])
        self._backend.end(worker)
        return ()

    def _prepare(self, model: WorkerModel, waits: Waits, awaited: frozenset[tuple[int, int]]) -> tuple[_Action, ...]:
        program = model.program
        return tuple(
            _Action(
                run=self._fetch(step, program.worker) if isinstance(step, Fetch) else self._segment(step, model),
                waits=tuple(wanted.items()),
                is_awaited=(program.worker, number + 1) in awaited,
                is_fetch=isinstance(step, Fetch),
            )
            for number, (step, wanted) in enumerate(zip(program.steps, waits, strict=True))
        )

    def _fetch(self, fetch: Fetch, worker: int) -> Callable[[], int]:
        return self._backend.transport.bind(fetch, worker, self._locate).run

    def _locate(self, source: Source) -> Tile:
        buffer = self._programs[source.worker].buffers[source.buffer]
        return Tile(self._arrays[source.worker][source.buffer].reshape(buffer.region.shape), buffer.region)

    def _segment(self, segment: Segment, model: WorkerModel) -> Callable[[], int]:
        worker = model.program.worker
        try:
            return self._backend.segment(segment, model, self._arrays[worker])
        except Exception as error:
            raise Failure(worker, segment, f"{type(error).__name__}: {error}").error() from error


def state_buffers(program: WorkerProgram, state: Sequence[StatePair]) -> tuple[tuple[str, str], ...]:
    """A worker's buffers of each state and of its next value, where they do not lie in one and the same place."""
    loaded, collected = (_by_tensor(program, names) for names in (program.loaded, program.collected))
    offsets = program.arena.offsets if program.arena is not None else None
    pairs = []
    for pair in state:
        made = {program.buffers[name].region: name for name in collected.get(pair.following, ())}
        for name in loaded.get(pair.current, ()):
            region = program.buffers[name].region
            assert region in made, f"worker {program.worker} gets {name!r} and does not make its next value"
            is_in_place = offsets is not None and offsets[made[region]] == offsets[name]
            if made[region] != name and not is_in_place:
                pairs.append((name, made[region]))
    return tuple(pairs)


def _by_tensor(program: WorkerProgram, names: Sequence[str]) -> dict[str, list[str]]:
    """Buffers by the tensor that they hold a part of."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(program.buffers[name].tensor, []).append(name)
    return found
