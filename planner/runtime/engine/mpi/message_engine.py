"""The engine ``mpi``: every rank runs one worker, alone in its process, and rank 0 speaks for all.

Each rank makes one of these, and all of them are asked the same things in the same order. A rank fills and reads its
own worker's tiles; what is whole, which a user asks for, goes to rank 0 or comes from there tensor by tensor.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from planner.artifacts.program import Arena, Segment, WorkerProgram
from planner.artifacts.waits import Waits
from planner.artifacts.worker_model import WorkerModel
from planner.errors import TofuError
from planner.graph.core.model import StatePair
from planner.progress import Progress, silent
from planner.runtime.engine.core.backend import Backend, CpuBackend
from planner.runtime.engine.core.check import describe
from planner.runtime.engine.core.exchange import IDLE, Exchange, arena_of, check_room
from planner.runtime.engine.core.executor import Iteration, orders_of
from planner.runtime.engine.core.interface import Engine, Source
from planner.runtime.engine.core.sessions import threads_of
from planner.runtime.engine.core.worker_executor import WorkerExecutor, failure
from planner.runtime.engine.mpi.meeting import agree_on_start
from planner.runtime.engine.mpi.message_peers import (
    Inbox,
    InboxTransport,
    MessagePeers,
    Places,
    RankBackend,
    sent_boxes,
)
from planner.runtime.engine.mpi.messages import Post, messages, with_arrivals
from planner.runtime.engine.mpi.world import World

MakeBackend: TypeAlias = Callable[[Sequence[WorkerProgram], int, Post, Waits, Exchange], RankBackend]
"""Makes where a worker computes: of all programs, where those of others are empty, and the worker's number, messages,
waits and host memory."""
NOTED_AT: Final = 1 << 20


class MessageEngine(Engine):
    """One worker of a plan on this rank, and the ranks of the others.

    Args:
        model: of this rank's worker.
        programs: of all workers.
        world: the ranks; it knows which runs which worker.
        state: states and their next values.
        make_backend: where the worker computes; None: on the CPU.
        libraries: of custom operators, on the CPU.
        note: a file for whoever watches this process: it gets the number of the step that each worker is in, of which
            this one's is true, eight bytes each, and from ``NOTED_AT`` on its worker and the names of the steps.
        has_process: nothing else in this process makes sessions.
        progress: told what is being done.

    Raises:
        TofuError: the programs do not fit together, or a session cannot be made.
    """

    def __init__(
        self,
        model: WorkerModel,
        programs: Sequence[WorkerProgram],
        world: World,
        state: Sequence[StatePair] = (),
        *,
        make_backend: MakeBackend | None = None,
        libraries: Sequence[Path] = (),
        note: int | None = None,
        has_process: bool = True,
        progress: Progress = silent,
    ) -> None:
        self.programs, self._world, self.reports = tuple(programs), world, world.rank == 0
        self._program, self._worker = model.program, model.program.worker
        orders = orders_of(programs, state)
        post = messages(programs)[self._worker]
        neighbours = world.hosts.count(world.host)
        check_room([program for program in programs if world.hosts[world.ranks[program.worker]] == world.host])
        # Each rank lays out memory for its own worker alone; whether there is room is asked for all ranks of the host.
        local_view = [program if program.worker == self._worker else _elsewhere(program) for program in programs]
        self._exchange = Exchange(local_view)
        if note is not None:
            self._exchange.whereabouts = self._noted(note)
        waits = with_arrivals(orders.waits[self._worker], post)
        progress(f"making sessions: worker {self._worker}")
        if make_backend is not None:
            backend: Backend = (staged := make_backend(local_view, self._worker, post, waits, self._exchange))
            places, staging_bytes = staged.places, staged.staging_bytes[self._worker]
        else:
            inbox = Inbox(self._program, post)
            backend = CpuBackend(
                self._exchange,
                neighbours,
                sum(isinstance(step, Segment) for step in self._program.steps),
                transport=InboxTransport(self._program, inbox),
                is_shared=has_process,
                libraries=libraries,
            )
            arrays = {name: self._exchange.array(self._worker, name) for name in self._program.buffers}
            places, staging_bytes = Places(sent_boxes(self._program, post, arrays), inbox.received), inbox.size_bytes
            self.threads = threads_of(neighbours)
        backend.enter(self._worker)
        peers = MessagePeers(post, places, world.channel, world.ranks, world.finish)
        self._executor = WorkerExecutor(model, self.programs, waits, (), self._exchange, state, backend, peers)
        self.on_gpus = backend.on_gpus()
        world.place = self._place
        mine = arena_of(self._program).size_bytes, staging_bytes + peers.packed_bytes
        by_rank = world.gather(mine, "to make its sessions")
        amounts: list[tuple[int, int]] = [(0, 0)] * len(programs)
        for worker, rank in enumerate(world.ranks):
            if by_rank is not None:
                amounts[worker] = tuple(by_rank[rank])
        self.arena_bytes = tuple(arena for arena, _ in amounts)
        self.staging_bytes = tuple(staging for _, staging in amounts)
        self._copies: dict[tuple[int, str], np.ndarray] = {}

    @property
    def local_programs(self) -> tuple[WorkerProgram, ...]:
        """See ``Engine.local_programs``."""
        return (self._program,)

    @property
    def whereabouts(self) -> np.ndarray:
        """The number of the step that this rank's worker is in, or IDLE: one number, as long as the engine lives."""
        return self._exchange.whereabouts[self._worker : self._worker + 1]

    def array(self, worker: int, buffer: str) -> np.ndarray:
        """See ``Engine.array``: of this rank's worker, and on rank 0 also what was pulled last."""
        return self._exchange.array(worker, buffer) if worker == self._worker else self._copies[worker, buffer]

    def push(self, names: Collection[str] | None = None) -> None:
        """See ``Engine.push``."""
        self._executor.push(names)

    def pull(self, names: Collection[str]) -> None:
        """See ``Engine.pull``."""
        self._executor.pull(names)

    def collect(self, names: Sequence[str]) -> Iterator[Sequence[str]]:
        """See ``Engine.collect``: rank 0 has copies, of one tensor at a time."""
        for tensor in names:
            self._copies.clear()
            self.pull([tensor])
            for worker, name in self.tiles.get(tensor, ()):
                rank, buffer = self._world.ranks[worker], self.programs[worker].buffers[name]
                if rank and worker == self._worker:
                    self._world.send(self._exchange.array(worker, name), 0, "to take its results")
                elif rank and self.reports:
                    copy = np.empty(buffer.shape, buffer.dtype.array_dtype)
                    self._world.receive(copy, rank, f"for its tile of {tensor!r}", is_patient=True)
                    self._copies[worker, name] = copy
            yield [tensor]

    def hand_out(self, source: Source, names: Sequence[str]) -> None:
        """See ``Engine.hand_out``: rank 0 fills its own tiles, and sends the others theirs."""
        for tensor in names:
            for program in self.programs:
                rank = self._world.ranks[program.worker]
                for name in program.loaded:
                    buffer = program.buffers[name]
                    if buffer.tensor != tensor:
                        continue
                    if self.reports:
                        part = source(tensor, buffer.region).reshape(buffer.shape)
                        if rank == 0:
                            np.copyto(self._exchange.array(self._worker, name), part)
                        else:
                            self._world.send(part, rank, "to take its tiles")
                    elif program.worker == self._worker:
                        self._world.receive(self._exchange.array(self._worker, name), 0, "to judge a step")
        self.push(names)

    def agree(self, step: int, seed: int) -> None:
        """See ``Engine.agree``."""
        agree_on_start(self._world, step, seed)

    def spread(self, value: Any, purpose: str, *, is_patient: bool = False) -> Any:
        """See ``Engine.spread``."""
        return self._world.spread(value, purpose, is_patient=is_patient)

    def gather(self, value: Any, purpose: str) -> list[Any]:
        """See ``Engine.gather``."""
        return self._world.gather(value, purpose) or []

    def iterate(self, *, timed: bool = False, advances: bool = False, wanted: Sequence[str] = ()) -> Iteration:
        """See ``Engine.iterate``. Other ranks than 0 know of no bytes but their own worker's."""
        self._world.attend()
        start = time.perf_counter()
        try:
            with np.errstate(all="ignore"):  # what is not finite is for the judge
                if timed:
                    moved, timings = self._executor.iterate_timed(advances=advances)
                else:
                    moved, timings = self._executor.iterate(advances=advances), ()
        except TofuError:
            raise
        except Exception as error:
            step = self._program.steps[int(self.whereabouts[0])]
            raise failure(self._worker, step, f"{type(error).__name__}: {error}") from error
        seconds = time.perf_counter() - start
        mine = (moved, seconds, timings)
        by_rank = self._world.gather(mine, "to end a step", is_patient=True)
        if by_rank is None:
            return Iteration((), seconds)
        by_worker = [by_rank[rank] for rank in self._world.ranks]
        return Iteration(
            tuple(tuple(moved) for moved, _, _ in by_worker),
            max(seconds for _, seconds, _ in by_worker),
            tuple(tuple((waited, took) for waited, took in steps) for _, _, steps in by_worker) if timed else (),
        )

    def close(self) -> None:
        """See ``Engine.close``: nothing but this process is this rank's."""
        self._exchange.close()

    def _noted(self, note: int) -> np.ndarray:
        """Whereabouts that another process sees."""
        whereabouts = np.frombuffer(mmap.mmap(note, NOTED_AT), np.int64)[: len(self.programs)]
        whereabouts[:] = IDLE
        header = {"worker": self._worker, "steps": [describe(step) for step in self._program.steps]}
        os.pwrite(note, json.dumps(header).encode(), NOTED_AT)
        return whereabouts

    def _place(self) -> str:
        number = int(self.whereabouts[0])
        steps = self._program.steps
        return f"in {describe(steps[number])}" if 0 <= number < len(steps) else "at the end of an iteration"


def _elsewhere(program: WorkerProgram) -> WorkerProgram:
    """A worker of which nothing is on this machine."""
    return WorkerProgram(program.worker, {}, (), (), (), (), Arena(0, {}, 0))
