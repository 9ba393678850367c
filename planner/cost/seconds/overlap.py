"""An iteration in which transfers go on beside computing: a list schedule of the program's steps.

Each worker computes its segments one after the other, in program order. A fetch begins as soon as all that it reads is
there, without waiting for its turn; from each worker that it reads there is one transfer, which queues at the ports of
its route, first come, first served. Memory that a fetch would write to too early is not looked at: an engine needs a
second buffer there.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from planner.artifacts.program import Fetch, Program, Segment
from planner.artifacts.waits import needs, writers
from planner.cost.seconds.assignment import sent_bytes
from planner.machine.routes import Interconnect

_Task = tuple[int, int]
"""Worker and number of the step."""


def overlapped_seconds(
    program: Program,
    segment_seconds: Mapping[_Task, float],
    interconnect: Interconnect,
    devices: Sequence[int],
) -> float:
    """When the last step ends.

    Args:
        program: of all workers.
        segment_seconds: by worker and number of the step.
        interconnect: of the machine.
        devices: the device of each worker.
    """
    before, after = _dependencies(program)
    ready: dict[_Task, float] = {}
    free: dict[int, float] = {}
    waiting = [(0.0, number, worker) for (worker, number), count in before.items() if not count]
    heapq.heapify(waiting)
    end = 0.0
    while waiting:
        start, number, worker = heapq.heappop(waiting)
        task = (worker, number)
        step = program.workers[worker].steps[number]
        if isinstance(step, Segment):
            done = start + segment_seconds[task]
        else:
            item_bytes = program.workers[worker].buffers[step.target].dtype.item_bytes
            done = _transferred(step, item_bytes, worker, start, free, interconnect, devices)
        end = max(end, done)
        for other in after.get(task, ()):
            ready[other] = max(ready.get(other, 0.0), done)
            before[other] -= 1
            if not before[other]:
                heapq.heappush(waiting, (ready[other], other[1], other[0]))
    assert not any(before.values()), "steps wait in a circle"
    return end


def _transferred(
    fetch: Fetch,
    item_bytes: int,
    worker: int,
    start: float,
    free: dict[int, float],
    interconnect: Interconnect,
    devices: Sequence[int],
) -> float:
    """When a fetch has all of its parts; the ports that it uses are taken until then."""
    done = start
    for sender, amount in sent_bytes(fetch, item_bytes).items():
        if sender == worker:
            continue
        route = interconnect.route(devices[sender], devices[worker])
        begin = max(start, *(free.get(port, 0.0) for port in route.ports))
        for port in route.ports:
            free[port] = begin + amount / interconnect.port_bytes_per_s[port]
        done = max(done, begin + route.latency_seconds + amount / route.bandwidth_bytes_per_s)
    return done


def _dependencies(program: Program) -> tuple[dict[_Task, int], dict[_Task, list[_Task]]]:
    """How many steps each waits for, and which wait for each: for data, and segments for the one before."""
    ready = [writers(worker) for worker in program.workers]
    before: dict[_Task, int] = {}
    after: dict[_Task, list[_Task]] = {}
    for worker in program.workers:
        last: _Task | None = None
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
            before[task] = len(wanted)
            for other in sorted(wanted):
                after.setdefault(other, []).append(task)
    return before, after
