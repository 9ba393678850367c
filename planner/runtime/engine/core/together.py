"""Fetches of a worker that may run as one launch: neighbours between which nothing must happen."""

from __future__ import annotations

from planner.artifacts.program import Fetch, WorkerProgram
from planner.artifacts.waits import Waits


def launches(program: WorkerProgram, waits: Waits, *, together: bool) -> tuple[range, ...]:
    """The worker's steps, in order, as ranges of numbers that run as one.

    A fetch joins those right before it if it waits for nobody, and neither reads what they write on this worker nor
    writes where they read or write: in one launch nobody knows which comes first.

    Args:
        program: the worker's.
        waits: what each of its steps waits for.
        together: False: every step is a range of its own.
    """
    ranges: list[range] = []
    for number, step in enumerate(program.steps):
        last = ranges[-1] if ranges else range(0)
        if together and isinstance(step, Fetch) and last and not waits[number]:
            before = [fetch for fetch in program.steps[last.start : last.stop] if isinstance(fetch, Fetch)]
            if len(before) == len(last) and not any(_collide(program, fetch, step) for fetch in before):
                ranges[-1] = range(last.start, number + 1)
                continue
        ranges.append(range(number, number + 1))
    return tuple(ranges)


def _collide(program: WorkerProgram, earlier: Fetch, later: Fetch) -> bool:
    """Whether the order of two fetches of a worker matters."""
    places = [
        ({fetch.target}, {source.buffer for source in fetch.sources if source.worker == program.worker})
        for fetch in (earlier, later)
    ]
    (written, read), (later_written, later_read) = places
    return (
        _overlap(program, written, later_written)
        or _overlap(program, written, later_read)
        or _overlap(program, read, later_written)
    )


def _overlap(program: WorkerProgram, earlier: set[str], later: set[str]) -> bool:
    arena = program.arena
    if arena is None:
        return bool(earlier & later)
    spans = [
        [(arena.offsets[name], arena.offsets[name] + program.buffers[name].size_bytes) for name in names]
        for names in (earlier, later)
    ]
    return any(lo < stop and start < hi for lo, hi in spans[0] for start, stop in spans[1])
