"""The order of a program's steps on all workers together.

Workers run asynchronously; what orders their steps is who waits for whom. Two kinds of waiting are derived here, by
the partitioner that lays out memory and by the runtime that checks the layout and waits:

    data     a fetch waits for the steps, on other workers, that write what it reads
    reuse    a step that writes where another buffer lay waits for the fetches, on other workers, that read that one

The *level* of a step is the longest chain of data dependencies before it. Memory is reused only by steps of a higher
level than all the remote readers of what lay there, so that every wait of either kind goes from a lower level to a
higher one, and no chain of waits can come back to itself.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias

from planner.artifacts.program import Fetch, Source, Step, WorkerProgram

Waits: TypeAlias = tuple[Mapping[int, int], ...]
"""For each step of a worker: other workers, and how many steps each must have done before it."""


def outputs_of(step: Step) -> tuple[str, ...]:
    """The buffers that a step writes."""
    return (step.target,) if isinstance(step, Fetch) else step.outputs


def needs(program: WorkerProgram, step: Step) -> tuple[Source, ...]:
    """The buffers, here and on other workers, that a step reads."""
    if isinstance(step, Fetch):
        return step.sources
    return tuple(Source(program.worker, name) for name in dict.fromkeys(step.inputs))


def writers(program: WorkerProgram) -> dict[str, int]:
    """The number of the step after which each buffer is ready, counted from 1; 0 where it is so from the beginning."""
    ready = dict.fromkeys((*program.loaded, *program.fixed), 0)
    for number, step in enumerate(program.steps):
        for name in outputs_of(step):
            ready[name] = number + 1
    return ready


def reads(program: WorkerProgram) -> Iterator[tuple[int, int, str]]:
    """The reads of a worker's steps in order: the step's number, from 1, the worker read from, and the buffer."""
    for number, step in enumerate(program.steps, start=1):
        if isinstance(step, Fetch):
            for piece in step.pieces:
                for source in piece.sources:
                    yield number, source.worker, source.buffer
        else:
            for name in step.inputs:
                yield number, program.worker, name


def last_local_reads(program: WorkerProgram) -> dict[str, int]:
    """The number of the last step of its own worker that reads each buffer, counted from 1; none where none does."""
    return {buffer: number for number, worker, buffer in reads(program) if worker == program.worker}


def remote_readers(programs: Sequence[WorkerProgram]) -> tuple[dict[str, dict[int, int]], ...]:
    """The remote readers of each buffer of each worker, and the number of their last step that reads it, from 1."""
    readers: tuple[dict[str, dict[int, int]], ...] = tuple({} for _ in programs)
    for program in programs:
        for number, worker, buffer in reads(program):
            if worker != program.worker:
                readers[worker].setdefault(buffer, {})[program.worker] = number
    return readers


@dataclass(frozen=True, slots=True)
class LastReads:
    """The last reads of a worker's buffers."""

    local: Mapping[str, int]
    """The number of the last step of the worker itself that reads a buffer, counted from 1; none where none does."""
    remote: Mapping[str, int]
    """The level of the last step of any other worker that reads a buffer; none where none does."""


def last_reads(programs: Sequence[WorkerProgram], level: Sequence[Sequence[int]]) -> tuple[LastReads, ...]:
    """The last reads of each worker's buffers.

    Args:
        programs: of all workers.
        level: of every step of every worker.
    """
    local: list[dict[str, int]] = [{} for _ in programs]
    remote: list[dict[str, int]] = [{} for _ in programs]
    for program in programs:
        own, levels_here = local[program.worker], level[program.worker]
        for number, worker, buffer in reads(program):
            if worker == program.worker:
                own[buffer] = number
            elif remote[worker].get(buffer, -1) < levels_here[number - 1]:
                remote[worker][buffer] = levels_here[number - 1]
    return tuple(LastReads(*last) for last in zip(local, remote, strict=True))


def data_waits(programs: Sequence[WorkerProgram]) -> tuple[Waits, ...]:
    """The waits of each worker's steps for their inputs on other workers."""
    ready = [writers(program) for program in programs]
    written: dict[int, tuple[tuple[int, int], ...]] = {}
    """By identity of a piece, which readers share: who holds it, and the number of the step after which it is there."""
    waits_by_worker = []
    for program in programs:
        waits: list[dict[int, int]] = []
        for step in program.steps:
            counts: dict[int, int] = {}
            if isinstance(step, Fetch):
                for piece in step.pieces:
                    after = written.get(id(piece))
                    if after is None:
                        after = tuple(
                            [(source.worker, ready[source.worker][source.buffer]) for source in piece.sources]
                        )
                        written[id(piece)] = after
                    for worker, count in after:
                        if count > counts.get(worker, 0) and worker != program.worker:
                            counts[worker] = count
            waits.append(counts)
        waits_by_worker.append(tuple(waits))
    return tuple(waits_by_worker)


def reuse_waits(programs: Sequence[WorkerProgram]) -> tuple[Waits, ...]:
    """The waits of each worker's steps until nobody reads the bytes that they overwrite.

    What the worker has waited for before, for that place, is left out.
    """
    readers = remote_readers(programs)
    waits_by_worker = []
    for program in programs:
        waits: list[dict[int, int]] = [{} for _ in program.steps]
        buffer_readers = readers[program.worker]
        if program.arena is not None and buffer_readers:
            read: list[tuple[int, int, Mapping[int, int]]] = []
            """By place, disjoint: what others still read of what lies there."""
            for number, names in enumerate([(*program.loaded, *program.fixed), *map(outputs_of, program.steps)]):
                for name in names:
                    lo = program.arena.offsets[name]
                    hi = lo + program.buffers[name].size_bytes
                    first = bisect_right(read, lo, key=itemgetter(1))
                    last = bisect_left(read, hi, key=itemgetter(0))
                    over = read[first:last]
                    pending = buffer_readers.get(name, {})
                    # What is loaded has no step that could wait: who writes there next waits for these readers, too.
                    if number:
                        waits[number - 1] = _largest([waits[number - 1], *(counts for _, _, counts in over)])
                    else:
                        pending = _largest([pending, *(counts for _, _, counts in over)])
                    read[first:last] = [
                        *((start, lo, counts) for start, _, counts in over[:1] if start < lo),
                        *([(lo, hi, pending)] if pending else ()),
                        *((hi, stop, counts) for _, stop, counts in over[-1:] if stop > hi),
                    ]
        waits_by_worker.append(tuple(waits))
    return tuple(waits_by_worker)


def _largest(counts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """The largest of several counts, by worker."""
    largest: dict[int, int] = {}
    for by_worker in counts:
        for worker, count in by_worker.items():
            if count > largest.get(worker, 0):
                largest[worker] = count
    return largest


def joined_waits(programs: Sequence[WorkerProgram]) -> tuple[Waits, ...]:
    """The waits of both kinds, without those that the worker has had before."""
    waits_by_worker = []
    for data, reuse in zip(data_waits(programs), reuse_waits(programs), strict=True):
        seen: dict[int, int] = {}
        waits: list[Mapping[int, int]] = []
        for data_counts, reuse_counts in zip(data, reuse, strict=True):
            wanted = sorted(_largest([data_counts, reuse_counts]).items())
            unseen = {worker: count for worker, count in wanted if count > seen.get(worker, 0)}
            seen.update(unseen)
            waits.append(unseen)
        waits_by_worker.append(tuple(waits))
    return tuple(waits_by_worker)


def awaited_counts(waits: Sequence[Waits]) -> tuple[frozenset[int], ...]:
    """The counts that each worker awaits: the counts of its steps for which some other one waits."""
    counts: tuple[set[int], ...] = tuple(set() for _ in waits)
    for steps in waits:
        for wanted in steps:
            for writer, count in wanted.items():
                counts[writer].add(count)
    return tuple(map(frozenset, counts))


def stuck(waits: Sequence[Waits]) -> dict[int, int]:
    """The workers that would wait for ever, and the number of the step, from 0, at which each would.

    Every worker goes as far as it can, in turn, until all are done or none can go on.
    """
    done = [0] * len(waits)
    moving = True
    while moving:
        moving = False
        for worker, steps in enumerate(waits):
            while done[worker] < len(steps):
                if any(count > done[writer] for writer, count in steps[done[worker]].items()):
                    break
                done[worker] += 1
                moving = True
    return {worker: number for worker, number in enumerate(done) if number < len(waits[worker])}


def levels(programs: Sequence[WorkerProgram]) -> tuple[tuple[int, ...], ...]:
    """The level of every step; along a worker's steps it rises from each to the next.

    Raises:
        AssertionError: steps wait for each other in a circle.
    """
    waits = data_waits(programs)
    level_of: list[list[int]] = [[] for _ in programs]
    moving = True
    while moving:
        moving = False
        for worker, steps in enumerate(waits):
            mine = level_of[worker]
            for number in range(len(mine), len(steps)):
                before = mine[-1] if mine else -1
                for writer, count in steps[number].items():
                    if count > len(level_of[writer]):
                        break
                    before = max(before, level_of[writer][count - 1])
                else:
                    mine.append(before + 1)
                    moving = True
                    continue
                break
    assert all(len(level) == len(steps) for level, steps in zip(level_of, waits, strict=True)), "steps wait in a circle"
    return tuple(tuple(level) for level in level_of)
