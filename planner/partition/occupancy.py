"""Occupancy: buffers of a worker over the steps of its program, and their purposes.

Buffers are counted from the step that writes them to the last one that needs them, as the layout of the arena has them
(``planner.partition.memory``); a next state that is written over its state takes no room of its own. What tensors
inside of segments take, and gaps of the layout, is reserved throughout. So the most that is held is the peak that the
plan states, to the byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from planner.artifacts.asked import ByWorker
from planner.artifacts.program import Program, WorkerProgram
from planner.artifacts.waits import LastReads, last_reads, levels
from planner.graph.core.model import Graph
from planner.graph.step.purposes import Purpose, purposes
from planner.partition.memory import live_spans
from planner.partition.packing import Span


@dataclass(frozen=True, slots=True)
class Held:
    """A buffer that takes room of its own."""

    told: ClassVar = "name=buffer tensor purpose op_type size_bytes first_step=first last_step=last"

    buffer: str
    tensor: str
    """That it holds a part of."""
    purpose: Purpose
    op_type: str
    """Of the op that makes the tensor; "" of an input."""
    size_bytes: int
    first: int
    """The step from which on it is held, from 0."""
    last: int
    """The last step in which it is needed; the number of all steps where it is needed to the end."""


@dataclass(frozen=True)
class Occupancy:
    """The buffers that a worker holds over its steps."""

    worker: int
    total_bytes: int
    """The peak that the plan states: the arena, and the tensors inside of segments."""
    held: tuple[Held, ...]
    """Its buffers, those that are held from the beginning first."""
    by_purpose: Mapping[Purpose, NDArray[np.int64]]
    """Bytes in each step, and at last after all of them; only of purposes for which there is something."""

    @cached_property
    def held_bytes(self) -> NDArray[np.int64]:
        """The bytes that are held in each step, and after all of them; the most is the total."""
        total: NDArray[np.int64] = np.sum(list(self.by_purpose.values()), axis=0, dtype=np.int64)
        return total

    @cached_property
    def fullest(self) -> int:
        """The first step in which the most is held."""
        return int(self.held_bytes.argmax())

    @property
    def steps(self) -> int:
        """The number of steps of the program."""
        return len(self.held_bytes) - 1

    @property
    def at_fullest(self) -> list[Held]:
        """The buffers that are held in the fullest step, the largest first."""
        return self.at(self.fullest)

    def amounts(self, step: int) -> dict[Purpose, int]:
        """The bytes that are held in a step, by purpose."""
        return {purpose: int(amounts[step]) for purpose, amounts in self.by_purpose.items() if amounts[step]}

    def at(self, step: int) -> list[Held]:
        """The buffers that are held in a step, the largest first."""
        buffers = [held for held in self.held if held.first <= step <= held.last]
        return sorted(buffers, key=lambda held: (-held.size_bytes, held.buffer))

    def alike_at(self, step: int) -> list[tuple[Held, ...]]:
        """Buffers held in a step, in groups of one op type, purpose and size; the group that takes most first."""
        groups: dict[tuple[Purpose, str, int], list[Held]] = {}
        for held in sorted(self.at(step), key=lambda held: held.first):
            groups.setdefault((held.purpose, held.op_type, held.size_bytes), []).append(held)
        return sorted(map(tuple, groups.values()), key=lambda group: -len(group) * group[0].size_bytes)


def occupancy(program: Program, graph: Graph, worker: int) -> Occupancy:
    """The buffers of a worker over its steps.

    Args:
        program: with arenas.
        graph: that it is of; a buffer of what is no tensor there is a part of a constant.
        worker: which.
    """
    mine = program.workers[worker]
    level = levels(program.workers)
    spans = spans_held(program, mine, level, last_reads(program.workers, level))
    meant = purposes(graph)
    held = []
    for name, (size, first, last) in sorted(spans.items(), key=lambda item: item[1][1]):
        tensor = mine.buffers[name].tensor
        purpose = meant.get(tensor, Purpose.CONSTANTS)
        # The buffer that owns a tensor has its name; any other one holds what is fetched or cut out for an op.
        if name != tensor and purpose is not Purpose.CONSTANTS:
            purpose = Purpose.FETCHED
        maker = graph.producer.get(tensor)
        held.append(Held(name, tensor, purpose, "" if maker is None else maker.op_type, size, first, last))
    count = len(mine.steps)
    bytes_for = {
        purpose: needed_bytes((spans[entry.buffer] for entry in held if entry.purpose is purpose), count)
        for purpose in Purpose
    }
    needed = needed_bytes(spans.values(), count)
    bytes_for[Purpose.INSIDE] = np.full_like(needed, mine.workspace_bytes)
    bytes_for[Purpose.GAPS] = np.full_like(needed, mine.arena_bytes - int(needed.max()))
    return Occupancy(
        worker,
        mine.arena_bytes + mine.workspace_bytes,
        tuple(held),
        {purpose: amounts for purpose, amounts in bytes_for.items() if amounts.any()},
    )


def spans_held(
    program: Program, worker: WorkerProgram, chains: Sequence[Sequence[int]], reads: Sequence[LastReads]
) -> dict[str, Span]:
    """The spans in which each buffer of a worker takes room of its own; without an arena, all the time.

    Args:
        program: of all workers.
        worker: one of them.
        chains: the level of every step of every worker.
        reads: of the buffers of each worker, the last ones.
    """
    if worker.arena is None:
        return {name: (buffer.size_bytes, 0, len(worker.steps)) for name, buffer in worker.buffers.items()}
    spans, offsets = live_spans(worker, chains, reads), worker.arena.offsets
    for pair in program.state:
        is_over = pair.following != pair.current and offsets.get(pair.following) == offsets.get(pair.current)
        if is_over and pair.following in spans:
            del spans[pair.following]
    return spans


def needed_bytes(spans: Iterable[Span], count: int) -> NDArray[np.int64]:
    """The bytes of buffers in each of so many steps, and after all of them."""
    change = np.zeros(count + 2, np.int64)
    for size, first, last in spans:
        change[first] += size
        change[last + 1] -= size
    return np.cumsum(change)[: count + 1]


def tightest(peak_bytes: Sequence[int], limits: Sequence[int]) -> tuple[int, int]:
    """The worker that lacks the most memory, or has the least to spare, and how much it has.

    Args:
        peak_bytes: what each worker needs.
        limits: the memory there is, in any order: who needs more has the larger; ``ByWorker``: of each its own.
    """
    lacking = [
        (peak - limit, -peak, worker, limit)
        for worker, (peak, limit) in enumerate(zip(peak_bytes, limits_by_worker(peak_bytes, limits), strict=True))
    ]
    _, _, worker, limit = max(lacking)
    return worker, limit


def fits(peak_bytes: Sequence[int], limits: Sequence[int] | None) -> bool:
    """Whether the memory of workers fits into the memory there is; see ``tightest``. None: there is enough."""
    if limits is None:
        return True
    worker, limit = tightest(peak_bytes, limits)
    return peak_bytes[worker] <= limit


def limits_by_worker(peak_bytes: Sequence[int], limits: Sequence[int]) -> tuple[int, ...]:
    """The memory that each worker has: its own, or who needs more has the larger, of equal needs the first.

    >>> limits_by_worker((5, 9, 7), (9, 8, 10))
    (8, 10, 9)
    """
    if isinstance(limits, ByWorker):
        return limits
    workers = sorted(range(len(peak_bytes)), key=lambda worker: (peak_bytes[worker], -worker))
    limit_of = dict(zip(workers, sorted(limits), strict=True))
    return tuple(limit_of[worker] for worker in range(len(workers)))
