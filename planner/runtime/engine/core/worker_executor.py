"""The executor of one worker: its steps, bound once to its memory and run in every iteration.

It knows the others only as ``Peers``, who say when they have done a step, and by the memory that its fetches read. So
the same executor runs in a thread beside others, alone in a process, and on a machine of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from planner.artifacts.program import Fetch, Segment, Source, WorkerProgram
from planner.artifacts.waits import Waits
from planner.artifacts.worker_model import WorkerModel
from planner.errors import WorkerError
from planner.graph.core.model import StatePair
from planner.runtime.engine.core.backend import Backend
from planner.runtime.engine.core.check import check_overwriting, describe
from planner.runtime.engine.core.exchange import IDLE, Exchange
from planner.runtime.engine.core.peers import Peers
from planner.runtime.engine.core.together import launches
from planner.runtime.engine.core.transport import Tile

Timing = tuple[float, float]
"""Seconds that a step waited, and that it took."""


@dataclass(frozen=True, slots=True, eq=False)
class _Action:
    """A segment, a fetch, or several fetches that are launched together; ready to run."""

    run: Callable[[], tuple[int, ...]]
    """Returns the bytes that each of its fetches took from other workers; () for a segment."""
    waits: tuple[tuple[int, int], ...]
    """Other workers, and how many steps each must have done."""
    first: int
    """Number of its first step."""
    awaited: tuple[int, ...]
    """Counts of this worker's steps, among those it completes, for which another worker waits."""
    count: int
    """Of this worker's steps, when it is done."""


class WorkerExecutor:
    """Runs the steps of one worker.

    Args:
        model: the worker's.
        programs: of all workers; of the others no more than the buffers that this one reads need be there.
        waits: what each of the worker's steps waits for (``planner.artifacts.waits.joined_waits``).
        awaited: counts of the worker's steps for which others wait.
        exchange: memory of loaded and collected buffers, and where each worker is.
        state: states and their next values.
        backend: where the worker computes.
        peers: the other workers.
        owners: workers whose states it fetches from memory into which they copy the next ones (``Orders.owners``).

    Raises:
        ModelError: a segment writes over what it reads.
        WorkerError: a segment's session cannot be made.
    """

    def __init__(
        self,
        model: WorkerModel,
        programs: Sequence[WorkerProgram],
        waits: Waits,
        awaited: Collection[int],
        exchange: Exchange,
        state: Sequence[StatePair],
        backend: Backend,
        peers: Peers,
        owners: Collection[int] = (),
    ) -> None:
        check_overwriting(model.program, model.bodies)
        self.worker = model.program.worker
        self.program = model.program
        self._programs, self._exchange, self._backend, self._peers = programs, exchange, backend, peers
        self._arrays = backend.arrays(model)
        together = backend.transport.is_joining
        self._actions = tuple(
            self._prepare(model, steps, waits, awaited) for steps in launches(self.program, waits, together=together)
        )
        self._copied = state_buffers(self.program, state)
        self._owners = tuple(sorted(owners))

    def iterate(self, *, advances: bool = False) -> tuple[int, ...]:
        """All steps once.

        Args:
            advances: the next state of the iteration before becomes the state first.

        Returns:
            For each fetch in order: the bytes that it took from other workers.
        """
        return tuple(chain.from_iterable(self._run(lambda: None, advances=advances)))

    def iterate_timed(self, *, advances: bool = False) -> tuple[tuple[int, ...], tuple[Timing, ...]]:
        """All steps once, each measured; fetches that are launched together share their time by what they move."""
        backend, worker, marks = self._backend, self.worker, list[Any]()
        moved = self._run(lambda: marks.append(backend.mark(worker)), advances=advances)
        times = iter(backend.seconds(worker, marks))
        timings: list[Timing] = []
        for fetch_bytes in moved:
            start, ready, end = next(times), next(times), next(times)
            timings += _shared(ready - start, end - ready, fetch_bytes)
        return tuple(chain.from_iterable(moved)), tuple(timings)

    def _run(self, mark: Callable[[], None], *, advances: bool) -> list[tuple[int, ...]]:
        """All steps once.

        Args:
            mark: called before each action waits, before it runs, and after it.
            advances: see ``iterate``.

        Returns:
            By action, the bytes that each of its fetches took from other workers.
        """
        whereabouts, peers, backend, worker = self._exchange.whereabouts, self._peers, self._backend, self.worker
        moved: list[tuple[int, ...]] = []
        if advances:
            self._advance()
        peers.begin()
        for action in self._actions:
            whereabouts[worker] = action.first
            mark()
            for peer, count in action.waits:
                peers.wait(peer, count)
                backend.wait(worker, peer, count)
            mark()
            moved.append(action.run())
            mark()
            for count in action.awaited:
                backend.done(worker, count)
            peers.announce(action.count, is_awaited=bool(action.awaited))
        backend.end(worker)
        peers.end()
        whereabouts[worker] = IDLE
        return moved

    def _advance(self) -> None:
        """The next state becomes the state, here and where the worker fetches states."""
        for current, following in self._copied:
            self._backend.copy(self._arrays[current], self._arrays[following])
        if self._copied:
            self._backend.end(self.worker)
        self._peers.announce(0, is_awaited=True)
        for owner in self._owners:
            self._peers.wait(owner, 0)

    def push(self, names: Collection[str] | None) -> None:
        """Takes what was written to the exchange for the loaded buffers of some tensors; None: of all."""
        program = self.program
        wanted = [name for name in program.loaded if names is None or program.buffers[name].tensor in names]
        self._backend.push(self.worker, wanted)

    def pull(self, names: Collection[str]) -> None:
        """Brings the collected buffers of some tensors to the exchange."""
        program = self.program
        wanted = [name for name in program.collected if program.buffers[name].tensor in names]
        self._backend.pull(self.worker, wanted)

    def _prepare(self, model: WorkerModel, steps: range, waits: Waits, awaited: Collection[int]) -> _Action:
        run: Callable[[], tuple[int, ...]]
        step = self.program.steps[steps.start]
        if isinstance(step, Segment):
            run = self._segment(step, model)
        else:
            fetches = [fetch for fetch in self.program.steps[steps.start : steps.stop] if isinstance(fetch, Fetch)]
            run = self._backend.transport.bind_together(fetches, self.worker, self._locate_in_memory)
        return _Action(
            run=run,
            waits=tuple(waits[steps.start].items()),
            first=steps.start,
            awaited=tuple(number + 1 for number in steps if number + 1 in awaited),
            count=steps.stop,
        )

    def _locate_in_memory(self, source: Source) -> Tile:
        buffer = self._programs[source.worker].buffers[source.buffer]
        array = self._backend.array(source.worker, source.buffer)
        return Tile(array.reshape(buffer.region.shape), buffer.region)

    def _segment(self, segment: Segment, model: WorkerModel) -> Callable[[], tuple[int, ...]]:
        try:
            return self._backend.segment(segment, model, self._arrays)
        except Exception as error:
            raise failure(self.worker, segment, f"{type(error).__name__}: {error}") from error


def failure(worker: int, step: Segment | Fetch, cause: str) -> WorkerError:
    """The message to the user about a worker that failed in a step."""
    return WorkerError(f"worker {worker} failed in {describe(step)}", facts=tuple(cause.splitlines()))


def _shared(waited: float, seconds: float, moved: Sequence[int]) -> list[Timing]:
    """Timings of the steps of one action."""
    if len(moved) < 2:
        return [(waited, seconds)]
    total = sum(moved) or 1
    parts = [seconds * amount / total if sum(moved) else seconds / len(moved) for amount in moved]
    return [(waited, parts[0]), *((0.0, part) for part in parts[1:])]


def state_buffers(program: WorkerProgram, state: Sequence[StatePair]) -> tuple[tuple[str, str], ...]:
    """A worker's buffers of each state and of its next value, where they do not lie in one and the same place."""
    loaded, collected = (_by_tensor(program, names) for names in (program.loaded, program.collected))
    offsets = program.arena.offsets if program.arena is not None else None
    pairs = []
    for pair in state:
        following = {program.buffers[name].region: name for name in collected.get(pair.following, ())}
        for name in loaded.get(pair.current, ()):
            region = program.buffers[name].region
            assert region in following, f"worker {program.worker} gets {name!r} and does not make its next value"
            is_in_place = offsets is not None and offsets[following[region]] == offsets[name]
            if following[region] != name and not is_in_place:
                pairs.append((name, following[region]))
    return tuple(pairs)


def _by_tensor(program: WorkerProgram, names: Sequence[str]) -> dict[str, list[str]]:
    """Buffers by the tensor that they hold a part of."""
    by_tensor: dict[str, list[str]] = {}
    for name in names:
        by_tensor.setdefault(program.buffers[name].tensor, []).append(name)
    return by_tensor
