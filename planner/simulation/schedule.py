"""A program's steps on a machine, event by event.

Each worker has two queues, of what it computes and of what it fetches. *In order*, as the engines run a program, they
are one: a step begins when the one before it has ended, and when what it waits for on other workers is done
(``planner.artifacts.waits.joined_waits``). *Side by side*, segments are computed in the order of the program, and
fetches are made beside them, one after the other as they become ready; memory that a fetch would write to too early is
not looked at: an engine needs a second buffer there.

A fetch takes from all of its senders at the same time. Each of these transfers has a share of the ports of its route
(``links.py``) until its last byte has left, and arrives a latency later. What a fetch takes from its own worker takes
no time, as in the estimate.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from planner.artifacts.program import Fetch, Program, Segment
from planner.artifacts.waits import joined_waits, needs, writers
from planner.machine.routes import Interconnect
from planner.simulation.links import Flow, Links

Task: TypeAlias = tuple[int, int]
"""Worker, and number of the step."""
Queues: TypeAlias = Literal["in order", "side by side"]


@dataclass(frozen=True, slots=True)
class Ran:
    """The time of a step."""

    start_seconds: float
    end_seconds: float
    after: Task | None
    """What it began right after the end of: the last of what it waited for; None: it began at once."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """The transfer of a fetch from one other worker."""

    sender: int
    task: Task
    """The fetch."""
    moved_bytes: int
    level: str
    """Of its route."""
    start_seconds: float
    left_seconds: float
    """When the last byte left; it arrives the latency later."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """An iteration."""

    steps: tuple[tuple[Ran, ...], ...]
    """Of each worker, in the order of its program."""
    transfers: tuple[Transfer, ...]
    """In the order in which they ended."""

    @property
    def seconds(self) -> float:
        """The end of the last step; 0 of a program without steps."""
        return max((step.end_seconds for steps in self.steps for step in steps), default=0.0)

    def path(self) -> tuple[Task, ...]:
        """Steps that began right after each other, the last of them when the iteration ends, in their order in time.

        What they take adds up to the iteration.
        """
        ends = [(step.end_seconds, worker, number) for worker, steps in enumerate(self.steps)
                for number, step in enumerate(steps)]  # fmt: skip
        tasks: list[Task] = []
        task = max(ends, key=lambda end: (end[0], -end[1], -end[2]))[1:] if ends else None
        while task is not None:
            tasks.append(task)
            task = self.steps[task[0]][task[1]].after
        return tuple(reversed(tasks))


def simulate(
    program: Program,
    segment_seconds: Mapping[Task, float],
    interconnect: Interconnect,
    devices: Sequence[int],
    queues: Queues = "in order",
) -> Simulation:
    """Runs an iteration of a program.

    Args:
        program: of all workers.
        segment_seconds: what each segment computes.
        interconnect: of the machine.
        devices: the device of each worker.
        queues: how a worker's queues go on.
    """
    before = _in_order(program) if queues == "in order" else _side_by_side(program)
    return _Running(program, segment_seconds, interconnect, devices, before).until_the_end()


class _Running:
    """An iteration that goes on."""

    def __init__(
        self,
        program: Program,
        segment_seconds: Mapping[Task, float],
        interconnect: Interconnect,
        devices: Sequence[int],
        before: Mapping[Task, Iterable[Task]],
    ) -> None:
        self._program, self._seconds = program, segment_seconds
        self._interconnect, self._devices = interconnect, devices
        self._links = Links(interconnect.port_bytes_per_s)
        self._pending: dict[Task, int] = {}
        """How many steps each step still waits for."""
        self._after: dict[Task, list[Task]] = {}
        for task, predecessors in before.items():
            self._pending[task] = 0
            for predecessor in predecessors:
                self._pending[task] += 1
                self._after.setdefault(predecessor, []).append(task)
        self._events: list[tuple[float, int, Task | Flow]] = []
        """When a step ends or the last byte of a flow leaves, and a number that tells equal times apart."""
        self._count = 0
        self._started: dict[Task, tuple[float, Task | None]] = {}
        self._ended: dict[Task, float] = {}
        self._flows: dict[Flow, tuple[Transfer, float]] = {}
        """Those that go on: as they began, and the latency."""
        self._coming: dict[Task, tuple[int, float]] = {}
        """By fetch that goes on, how many transfers have not left, and when the last of the others arrives."""
        self._fetching: dict[int, Task] = {}
        """By worker, the fetch that goes on."""
        self._queue: dict[int, deque[Task]] = {worker.worker: deque() for worker in program.workers}
        self._starting: list[Flow] = []
        self._transfers: list[Transfer] = []

    def until_the_end(self) -> Simulation:
        """The simulation once all events are over."""
        for task in [task for task, count in self._pending.items() if not count]:
            self._begin(task, 0.0, None)
        clock = 0.0
        while True:
            over: list[Flow] = []
            while self._events and self._events[0][0] <= clock:
                time, _, event = heapq.heappop(self._events)
                if not isinstance(event, Flow):
                    self._end(event, clock)
                elif event in self._flows and event.end_seconds == time:  # else its speed has changed since
                    over.append(event)
                    self._leave(event, clock)
            started, self._starting = self._starting, []
            for flow in self._links.change(clock, started, over):
                self._at(flow.end_seconds, flow)
            if not self._events:
                break
            clock = self._events[0][0]
        assert len(self._ended) == len(self._pending), "steps wait in a circle"
        return Simulation(
            tuple(
                tuple(
                    Ran(self._started[task][0], self._ended[task], self._started[task][1])
                    for task in [(worker.worker, number) for number in range(len(worker.steps))]
                )
                for worker in self._program.workers
            ),
            tuple(self._transfers),
        )

    def _at(self, time: float, event: Task | Flow) -> None:
        self._count += 1
        heapq.heappush(self._events, (time, self._count, event))

    def _begin(self, task: Task, clock: float, after: Task | None) -> None:
        """A step of which all that it waits for is done, but for an earlier fetch of its worker."""
        worker, number = task
        step = self._program.workers[worker].steps[number]
        if isinstance(step, Segment):
            self._started[task] = (clock, after)
            self._at(clock + self._seconds[task], task)
        elif worker in self._fetching:
            self._queue[worker].append(task)
        else:
            self._fetching[worker] = task
            self._started[task] = (clock, after)
            self._take(task, step, clock)

    def _take(self, task: Task, fetch: Fetch, clock: float) -> None:
        worker = task[0]
        item_bytes = self._program.workers[worker].buffers[fetch.target].dtype.item_bytes
        count = 0
        for sender, amount in fetch.taken_bytes(item_bytes).items():
            if sender != worker:
                route = self._interconnect.route(self._devices[sender], self._devices[worker])
                flow = Flow(route.ports, amount)
                transfer = Transfer(sender, task, amount, route.level, clock, clock)
                self._flows[flow] = (transfer, route.latency_seconds)
                self._starting.append(flow)
                count += 1
        self._coming[task] = (count, clock)
        if not count:
            self._at(clock, task)

    def _leave(self, flow: Flow, clock: float) -> None:
        began, latency = self._flows.pop(flow)
        task = began.task
        self._transfers.append(Transfer(began.sender, task, began.moved_bytes, began.level, began.start_seconds, clock))
        count, last = self._coming[task]
        self._coming[task] = (count - 1, max(last, clock + latency))
        if count == 1:
            self._at(self._coming[task][1], task)

    def _end(self, task: Task, clock: float) -> None:
        self._ended[task] = clock
        for successor in self._after.get(task, ()):
            self._pending[successor] -= 1
            if not self._pending[successor]:
                self._begin(successor, clock, task)
        worker = task[0]
        if self._fetching.get(worker) == task:
            del self._fetching[worker]
            if self._queue[worker]:
                self._begin(self._queue[worker].popleft(), clock, task)


def _in_order(program: Program) -> dict[Task, list[Task]]:
    """What each step waits for where a worker does one after the other."""
    predecessors: dict[Task, list[Task]] = {}
    for worker, waits in zip(program.workers, joined_waits(program.workers), strict=True):
        for number, wanted in enumerate(waits):
            before = [(peer, count - 1) for peer, count in wanted.items()]
            predecessors[worker.worker, number] = before + ([(worker.worker, number - 1)] if number else [])
    return predecessors


def _side_by_side(program: Program) -> dict[Task, list[Task]]:
    """What each step waits for where fetches do not wait for computing: data, and segments for the one before."""
    ready = [writers(worker) for worker in program.workers]
    predecessors: dict[Task, list[Task]] = {}
    for worker in program.workers:
        last: Task | None = None
        for number, step in enumerate(worker.steps):
            task = (worker.worker, number)
            wanted = {
                (source.worker, ready[source.worker][source.buffer] - 1)
                for source in needs(worker, step)
                if ready[source.worker][source.buffer]
            }
            if isinstance(step, Segment):
                wanted |= {last} if last is not None else set()
                last = task
            predecessors[task] = sorted(wanted)
    return predecessors
