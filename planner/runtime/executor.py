"""All workers of a plan in one process: a thread each, bound once, run many times.

A worker runs its steps in order. A fetch waits until every buffer that it reads has been written in this iteration:
each worker counts the steps that it has done, and a fetch knows which count of which worker it needs. An iteration
ends when all workers have ended it, so no buffer is written while somebody still reads its last value.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from planner.errors import WorkerError
from planner.graph.model import StatePair
from planner.program import Fetch, Segment, Source, Step, WorkerProgram
from planner.runtime.check import check_programs, describe, needs, outputs_of, writers
from planner.runtime.exchange import IDLE, Exchange, new_array
from planner.runtime.sessions import SessionMaker, bind, body_model, cores
from planner.runtime.transport import NumpyTransport, Tile, Transport
from planner.worker_model import IR_VERSION, WorkerModel

_PATIENCE_SECONDS: Final = 1.0
"""How long the others may take to stop after one has failed."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """What one iteration did."""

    moved_bytes: tuple[tuple[int, ...], ...]
    """Per worker, for each of its fetches in order: the bytes that it took from other workers."""
    seconds: float


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
    """True if another worker reads what it writes."""
    is_fetch: bool


class Executor:
    """Runs the workers of a plan as threads of this process.

    Args:
        models: one per worker, in order.
        exchange: memory of loaded and collected buffers.
        state: states and their next values.
        transport: how arrays get from worker to worker.
        is_shared: sessions share one thread pool and one arena (see ``SessionMaker``).

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
    ) -> None:
        self._programs = tuple(model.program for model in models)
        check_programs(self._programs)
        self._exchange = exchange
        self._maker = SessionMaker(max(1, cores() // len(models)), is_shared=is_shared)
        self._sessions: dict[str, Any] = {}
        self._progress = _Progress(len(models))
        self._arrays = [self._memory(model) for model in models]
        self._transport = transport or NumpyTransport()
        awaited = self._awaited()
        self._actions = [self._prepare(model, awaited) for model in models]
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
        return len(self._sessions)

    @property
    def thread_idents(self) -> tuple[int, ...]:
        """The thread of each worker, as ``threading.get_ident`` gives it."""
        return tuple(thread.ident or 0 for thread in self._threads)

    def iterate(self) -> Iteration:
        """One iteration of all workers, from what is in the loaded buffers now.

        Raises:
            WorkerError: a worker failed; the first one that did is named, and the others have been stopped.
        """
        self._progress.reset()
        start = time.perf_counter()
        moved = self._all(self._iterate)
        return Iteration(moved, time.perf_counter() - start)

    def advance(self) -> None:
        """The next state becomes the state: each worker copies its own tiles."""
        self._all(self._advance)

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
        whereabouts, progress = self._exchange.whereabouts, self._progress
        moved = []
        for number, action in enumerate(self._actions[worker]):
            whereabouts[worker] = number
            for other, count in action.waits:
                progress.wait(other, count)
            taken = action.run()
            if action.is_fetch:
                moved.append(taken)
            progress.announce(worker, number + 1, is_awaited=action.is_awaited)
        whereabouts[worker] = IDLE
        return tuple(moved)

    def _advance(self, worker: int) -> tuple[int, ...]:
        for current, following in self._pairs[worker]:
            np.copyto(self._arrays[worker][current], self._arrays[worker][following])
        return ()

    def _memory(self, model: WorkerModel) -> Mapping[str, np.ndarray]:
        program = model.program
        arrays = {
            name: self._exchange.array(program.worker, name)
            if self._exchange.holds(program.worker, name)
            else new_array(buffer)
            for name, buffer in program.buffers.items()
        }
        for name in program.fixed:
            np.copyto(arrays[name], model.constants[name])
        return arrays

    def _awaited(self) -> frozenset[Source]:
        """Buffers that other workers read."""
        return frozenset(
            source
            for program in self._programs
            for step in program.steps
            if isinstance(step, Fetch)
            for source in needs(program, step)
            if source.worker != program.worker
        )

    def _prepare(self, model: WorkerModel, awaited: frozenset[Source]) -> tuple[_Action, ...]:
        program = model.program
        ready = [writers(other) for other in self._programs]
        actions = []
        for step in program.steps:
            counts: dict[int, int] = {}
            for source in needs(program, step):
                if source.worker != program.worker:
                    count = ready[source.worker][source.buffer]
                    counts[source.worker] = max(count, counts.get(source.worker, 0))
            actions.append(
                _Action(
                    run=self._fetch(step, program.worker) if isinstance(step, Fetch) else self._segment(step, model),
                    waits=tuple((other, count) for other, count in sorted(counts.items()) if count),
                    is_awaited=any(Source(program.worker, name) in awaited for name in outputs_of(step)),
                    is_fetch=isinstance(step, Fetch),
                )
            )
        return tuple(actions)

    def _fetch(self, fetch: Fetch, worker: int) -> Callable[[], int]:
        return self._transport.bind(fetch, worker, self._locate).run

    def _locate(self, source: Source) -> Tile:
        buffer = self._programs[source.worker].buffers[source.buffer]
        return Tile(self._arrays[source.worker][source.buffer].reshape(buffer.region.shape), buffer.region)

    def _segment(self, segment: Segment, model: WorkerModel) -> Callable[[], int]:
        program, body = model.program, model.bodies[segment.function]
        buffers = program.buffers
        arrays = self._arrays[program.worker]
        try:
            if segment.function not in self._sessions:
                kinds = (
                    [(buffers[name].shape, buffers[name].dtype) for name in names]
                    for names in (segment.inputs, segment.outputs)
                )
                self._sessions[segment.function] = self._maker.session(body_model(body, *kinds, ir_version=IR_VERSION))
            session = self._sessions[segment.function]
            inputs, outputs = (
                {name: (arrays[n], buffers[n].dtype) for name, n in zip(names, mine, strict=True)}
                for names, mine in ((body.input, segment.inputs), (body.output, segment.outputs))
            )
            binding = bind(session, inputs, outputs)
        except Exception as error:
            raise Failure(program.worker, segment, f"{type(error).__name__}: {error}").error() from error

        def compute() -> int:
            # Without RunOptions: they would let a run be ended, and cost 26 us in each.
            session.run_with_iobinding(binding)
            return 0

        return compute


def state_buffers(program: WorkerProgram, state: Sequence[StatePair]) -> tuple[tuple[str, str], ...]:
    """A worker's buffers of each state and of its next value, where they are not one and the same."""
    pairs = []
    for pair in state:
        made = {
            program.buffers[name].region: name for name in program.collected if _holds(program, name, pair.following)
        }
        for name in program.loaded:
            if _holds(program, name, pair.current):
                region = program.buffers[name].region
                assert region in made, f"worker {program.worker} gets {name!r} and does not make its next value"
                if made[region] != name:
                    pairs.append((name, made[region]))
    return tuple(pairs)


def _holds(program: WorkerProgram, buffer: str, tensor: str) -> bool:
    return program.buffers[buffer].tensor == tensor
