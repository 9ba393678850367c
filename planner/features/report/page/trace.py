"""A schedule as a trace: JSON that Perfetto and Chrome's tracing page open.

The form is the Trace Event Format (Google, "Trace Event Format", the JSON object form): ``traceEvents`` holds complete
events (``ph`` is ``X``, with ``ts`` and ``dur`` in microseconds), counters (``C``), flows from what is sent (``s``) to
the fetch that takes it (``f``), and metadata events (``M``) that name processes and threads. A worker is a process;
what it computes, fetches and sends and what was measured are its threads. After the workers comes a process of links.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from planner.algebra.tiling import Tiling
from planner.artifacts.measured import MeasuredRun
from planner.artifacts.plan import Plan
from planner.artifacts.program import Fetch
from planner.cost.roofline import amounts
from planner.cost.seconds.simulated import Schedule, Span
from planner.features.report.page.facts import Memory
from planner.graph.core.model import Graph
from planner.simulation.schedule import Transfer
from planner.tdl.bind import BoundOp

_TRACKS = {
    "compute": (1, "simulated: computing"),
    "fetch": (2, "simulated: fetching"),
    "send": (3, "simulated: sending"),
    "measured compute": (4, "measured: computing"),
    "measured fetch": (5, "measured: fetching"),
    "measured wait": (6, "measured: waiting"),
}
"""By track, the number of its thread, and what it is called."""
_MICROSECONDS = 1e6


def trace(
    plan: Plan,
    graph: Graph,
    ops: Iterable[BoundOp],
    schedule: Schedule,
    memory: Sequence[Memory],
    measured: MeasuredRun | None = None,
) -> dict[str, Any]:
    """The trace of a plan.

    Args:
        plan: of which it is.
        graph: that the plan is of.
        ops: of the graph.
        schedule: an iteration of the plan's program, simulated.
        memory: what each worker holds over the steps of that program.
        measured: what a run of the plan took, or None.

    Returns:
        Plain values, as the format has them.
    """
    estimate = schedule.estimate
    events = [
        *_names(plan.workers, estimate.devices, measured is not None),
        *_simulated(schedule.spans(), _Facts(plan, graph, ops, schedule)),
        *_sent(schedule, plan.workers),
        *_held(schedule, memory),
    ]
    summary: dict[str, Any] = {
        "model": plan.model,
        "topology": estimate.topology,
        "simulated_seconds": schedule.simulation.seconds,
        "estimated_seconds": estimate.estimated_seconds,
        "compute_seconds": estimate.compute_seconds,
        "transfer_seconds": estimate.transfer_seconds,
        "synchronisation_seconds": estimate.synchronisation_seconds,
        "overlapped_seconds": estimate.overlapped_seconds,
        "simulated": "each worker step by step, when what a step waits for is there; links shared evenly",
    }
    if measured is not None:
        events += _measured(measured)
        summary |= {
            "measured": f"mean of {measured.iterations}, steps laid end to end ({measured.engine}, {measured.device})",
            "measured_iteration_seconds": measured.iteration_seconds,
        }
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": summary}


def _names(workers: int, devices: Sequence[int], is_measured: bool) -> Iterator[dict[str, Any]]:
    for worker in range(workers):
        yield _metadata("process_name", worker, 0, name=f"worker {worker} (device {devices[worker]})")
        yield _metadata("process_sort_index", worker, 0, sort_index=worker)
        for number, name in _TRACKS.values():
            if is_measured or not name.startswith("measured"):
                yield _metadata("thread_name", worker, number, name=name)
                yield _metadata("thread_sort_index", worker, number, sort_index=number)
    yield _metadata("process_name", workers, 0, name="links")
    yield _metadata("process_sort_index", workers, 0, sort_index=workers)


def _metadata(kind: str, process: int, thread: int, **arguments: object) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "ts": 0, "args": arguments}


class _Facts:
    """The arguments of an event."""

    def __init__(self, plan: Plan, graph: Graph, ops: Iterable[BoundOp], schedule: Schedule) -> None:
        self._plan, self._graph, self._schedule = plan, graph, schedule
        self._ops = {bound.op.name: bound for bound in ops}
        self._work: dict[tuple[object, Tiling], tuple[list[float], list[float]]] = {}

    def of(self, span: Span) -> Mapping[str, object]:
        """Op type, bytes, FLOPs, tensor and split; of a fetch the op that makes its tensor, and no FLOPs."""
        if span.kind == "compute":
            bound = self._ops[span.name]
            tiling = self._plan.strategies[span.name].tiling
            # Equal layers are worked out once: most ops of a deep network are copies of a few.
            key = (bound.content, tiling)
            if key not in self._work:
                ranges = bound.ranges(tiling)
                operations, touched = amounts(bound, ranges, bound.reads(ranges))
                self._work[key] = operations.tolist(), touched.tolist()
            operations_of, touched_of = self._work[key]
            tensor = next(filter(None, bound.op.outputs), "")
            return {
                "op_type": bound.op.op_type,
                "strategy": str(self._plan.strategies[span.name]),
                "flop": round(operations_of[span.worker]),
                "touched_bytes": round(touched_of[span.worker]),
                **self._tensor(tensor),
            }
        worker = self._schedule.program.workers[span.worker]
        step = worker.steps[span.number]
        assert isinstance(step, Fetch), "what is no computing fetches"
        tensor = worker.buffers[step.target].tensor
        maker = self._graph.producer.get(tensor)
        return {
            "op_type": "" if maker is None else maker.op_type,
            "moved_bytes": step.predicted_bytes,
            **self._tensor(tensor),
        }

    def _tensor(self, name: str) -> Mapping[str, object]:
        tiling = self._plan.tilings.get(name)
        return {"tensor": name, "split": "" if tiling is None else str(tiling)}


def _simulated(spans: Iterable[Span], facts: _Facts) -> Iterator[dict[str, Any]]:
    for span in spans:
        track = "compute" if span.kind == "compute" else "fetch"
        yield _complete(span.name, span.kind, span.worker, track, span.start_seconds, span.seconds, **facts.of(span))


def _sent(schedule: Schedule, workers: int) -> Iterator[dict[str, Any]]:
    """When each worker sends, an arrow from there to each fetch, and how fast each level of links goes."""
    by_sender: dict[int, list[Transfer]] = {}
    changes: dict[str, list[tuple[float, float]]] = {}
    for number, transfer in enumerate(schedule.simulation.transfers):
        by_sender.setdefault(transfer.sender, []).append(transfer)
        took = transfer.left_seconds - transfer.start_seconds
        speed = transfer.moved_bytes / took if took else 0.0
        changes.setdefault(transfer.level, []).extend(
            ((transfer.start_seconds, speed), (transfer.left_seconds, -speed))
        )
        worker, step = transfer.task
        arrives = schedule.simulation.steps[worker][step].end_seconds
        name = schedule.program.workers[worker].steps[step].name
        # Halfway, so that rounding puts neither end outside of the event that it belongs to.
        sent, received = transfer.start_seconds + took / 2, (transfer.start_seconds + arrives) / 2
        yield _flow("s", name, number, transfer.sender, "send", sent)
        yield {**_flow("f", name, number, worker, "fetch", max(sent, received)), "bp": "e"}
    for sender, sent_by in sorted(by_sender.items()):
        for start, end, amount, count in _busy(sent_by):
            yield _complete("sending", "send", sender, "send", start, end - start, moved_bytes=amount, transfers=count)
    for level, changed in sorted(changes.items()):
        changed.sort()
        # Sums of floats may end a hair below zero.
        for (seconds, _), speed in zip(changed, accumulate(speed for _, speed in changed), strict=True):
            yield _counter(f"{level}: bytes per second", workers, seconds, all_transfers=max(0.0, speed))


def _busy(transfers: Sequence[Transfer]) -> Iterator[tuple[float, float, int, int]]:
    """From when to when at least one of a worker's transfers goes on; bytes and transfers that begin meanwhile."""
    spans: list[list[Any]] = []
    for transfer in sorted(transfers, key=lambda transfer: transfer.start_seconds):
        if not spans or transfer.start_seconds >= spans[-1][1]:
            spans.append([transfer.start_seconds, transfer.left_seconds, 0, 0])
        spans[-1][1] = max(spans[-1][1], transfer.left_seconds)
        spans[-1][2] += transfer.moved_bytes
        spans[-1][3] += 1
    return ((start, end, amount, count) for start, end, amount, count in spans)


def _held(schedule: Schedule, memory: Sequence[Memory]) -> Iterator[dict[str, Any]]:
    """What each worker holds, whenever that changes."""
    for worker, (ran, held) in enumerate(zip(schedule.simulation.steps, memory, strict=True)):
        times = [*(step.start_seconds for step in ran), schedule.simulation.seconds]
        before = None
        for seconds, amount in zip(times, held.held_bytes.tolist(), strict=True):
            if amount != before:
                yield _counter("memory", worker, seconds, held_bytes=amount)
                before = amount


def _measured(measured: MeasuredRun) -> Iterator[dict[str, Any]]:
    for worker, steps in enumerate(measured.workers):
        seconds = 0.0
        for step in steps:
            if step.wait_seconds > 0:
                yield _complete(step.name, "wait", worker, "measured wait", seconds, step.wait_seconds)
            seconds += step.wait_seconds
            track = "measured fetch" if step.is_fetch else "measured compute"
            extra = {"moved_bytes": step.moved_bytes} if step.is_fetch else {}
            yield _complete(step.name, track, worker, track, seconds, step.seconds, **extra)
            seconds += step.seconds


def _complete(
    name: str, kind: str, worker: int, track: str, start_seconds: float, seconds: float, **arguments: object
) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "cat": kind,
        "pid": worker,
        "tid": _TRACKS[track][0],
        "ts": start_seconds * _MICROSECONDS,
        "dur": seconds * _MICROSECONDS,
        "args": arguments,
    }


def _flow(phase: str, name: str, number: int, worker: int, track: str, seconds: float) -> dict[str, Any]:
    """An end of an arrow; both ends have its number."""
    return {
        "ph": phase,
        "id": number,
        "name": name,
        "cat": "sent",
        "pid": worker,
        "tid": _TRACKS[track][0],
        "ts": seconds * _MICROSECONDS,
        "args": {},
    }


def _counter(name: str, process: int, seconds: float, **values: float) -> dict[str, Any]:
    return {"ph": "C", "name": name, "pid": process, "tid": 0, "ts": seconds * _MICROSECONDS, "args": values}
