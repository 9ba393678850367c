"""A schedule as a trace: JSON that Perfetto and Chrome's tracing page open.

The form is the Trace Event Format (Google, "Trace Event Format", the JSON object form): ``traceEvents`` holds complete
events (``ph`` is ``X``, with ``ts`` and ``dur`` in microseconds) and metadata events (``ph`` is ``M``) that name
processes and threads. A worker is a process; what it computes, what it fetches and what was measured are its threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from planner.artifacts.estimate import TimeEstimate
from planner.artifacts.measured import MeasuredRun
from planner.cost.seconds.laid_out import Span

_TRACKS = {
    "compute": (1, "estimated: computing"),
    "fetch": (2, "estimated: fetching"),
    "measured compute": (3, "measured: computing"),
    "measured fetch": (4, "measured: fetching"),
    "measured wait": (5, "measured: waiting"),
}
"""By track, the number of its thread, and what it is called."""
_MICROSECONDS = 1e6


def trace(
    model: str, spans: Sequence[Span], estimate: TimeEstimate, measured: MeasuredRun | None = None
) -> dict[str, Any]:
    """The trace of a plan.

    Args:
        model: name of the model.
        spans: the estimate laid out over time.
        estimate: that they add up to.
        measured: what a run of the plan took, or None.

    Returns:
        Plain values, as the format has them.
    """
    workers = len(estimate.devices)
    events = [*_names(workers, estimate, measured is not None), *_estimated(spans)]
    other: dict[str, Any] = {
        "model": model,
        "topology": estimate.topology,
        "estimated_seconds": estimate.estimated_seconds,
        "compute_seconds": estimate.compute_seconds,
        "transfer_seconds": estimate.transfer_seconds,
        "synchronisation_seconds": estimate.synchronisation_seconds,
        "overlapped_seconds": estimate.overlapped_seconds,
        "estimated": "one thing after the other, each until its slowest worker is done",
    }
    if measured is not None:
        events += _measured(measured)
        other |= {
            "measured": f"mean of {measured.iterations}, steps laid end to end ({measured.engine}, {measured.device})",
            "measured_iteration_seconds": measured.iteration_seconds,
        }
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}


def _names(workers: int, estimate: TimeEstimate, is_measured: bool) -> Iterator[dict[str, Any]]:
    for worker in range(workers):
        yield _metadata("process_name", worker, 0, name=f"worker {worker} (device {estimate.devices[worker]})")
        yield _metadata("process_sort_index", worker, 0, sort_index=worker)
        for number, name in _TRACKS.values():
            if is_measured or not name.startswith("measured"):
                yield _metadata("thread_name", worker, number, name=name)
                yield _metadata("thread_sort_index", worker, number, sort_index=number)


def _metadata(what: str, process: int, thread: int, **arguments: object) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "ts": 0, "args": arguments}


def _estimated(spans: Sequence[Span]) -> Iterator[dict[str, Any]]:
    for span in spans:
        track = "compute" if span.kind == "compute" else "fetch"
        extra = {} if span.kind == "compute" else {"moved_bytes": span.moved_bytes}
        for worker, seconds in span.worker_seconds.items():
            yield _complete(span.name, span.kind, worker, track, span.start_seconds, seconds, **extra)


def _measured(measured: MeasuredRun) -> Iterator[dict[str, Any]]:
    for worker, steps in enumerate(measured.workers):
        now = 0.0
        for step in steps:
            if step.wait_seconds > 0:
                yield _complete(step.name, "wait", worker, "measured wait", now, step.wait_seconds)
            now += step.wait_seconds
            track = "measured fetch" if step.is_fetch else "measured compute"
            extra = {"moved_bytes": step.moved_bytes} if step.is_fetch else {}
            yield _complete(step.name, track, worker, track, now, step.seconds, **extra)
            now += step.seconds


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
