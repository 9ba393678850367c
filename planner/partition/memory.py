"""The static memory plan of a worker: where in one arena each of its buffers lies.

Liveness is taken over the whole step. A buffer is needed from the step that writes it to the last step that reads it,
here or on another worker; where another worker reads it, until the next step here whose level is above the reader's
(``planner.artifacts.waits``), which then waits for that reader. Loaded and fixed buffers are resident; collected ones
are needed to the end. A next state is written over its state where nothing but its own update can read the state.

Tofu (section 6) leaves reuse to MXNet's allocator and adds control dependencies so that each worker keeps the
original order; here the order of a worker's steps is fixed, so offsets are computed once, before the first step.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from onnx import FunctionProto

from planner.artifacts.in_place import overwriting
from planner.artifacts.program import Arena, Program, Segment, WorkerProgram
from planner.artifacts.waits import LastReads, last_reads, levels, writers
from planner.counted import counted
from planner.graph.core.model import StatePair
from planner.partition.packing import Packed, Span, best_fit, least_bytes


@dataclass(frozen=True, slots=True)
class Need:
    """The buffers that a worker's arena has to hold."""

    buffers: tuple[str, ...]
    """Those that get places of their own."""
    spans: tuple[Span, ...]
    """When each of them is needed."""
    over: Mapping[str, str]
    """Next states that are written over their states: by the next state's buffer, the state's."""
    workspace_bytes: int
    """Of the tensors inside of segments, at most."""

    @property
    def least_bytes(self) -> int:
        """No arena, with what lies inside of segments, is smaller."""
        return least_bytes(self.spans) + self.workspace_bytes


def needs(program: Program, bodies: Mapping[str, FunctionProto], workspaces: Mapping[str, int]) -> tuple[Need, ...]:
    """The buffers to be held, by worker.

    Args:
        program: of all workers; what lies where another worker reads it depends on that worker's steps.
        bodies: of its segments, by function.
        workspaces: bytes of the tensors inside of each function, at most (``workspace.py``).
    """
    level = levels(program.workers)
    overwrites = overwriting(bodies)
    reads = last_reads(program.workers, level)
    worker_needs = []
    for worker in counted(program.workers, "making programs: memory of worker", len(program.workers[0].steps)):
        spans = live_spans(worker, level, reads)
        over = in_place(worker, program.state, overwrites, level, reads)
        placed = tuple(name for name in worker.buffers if name not in over)
        workspace = max((workspaces[step.function] for step in worker.steps if isinstance(step, Segment)), default=0)
        worker_needs.append(Need(placed, tuple(spans[name] for name in placed), over, workspace))
    return tuple(worker_needs)


def with_arenas(program: Program, every: Sequence[Need], enough_bytes: int = 0, limit_bytes: int = 0) -> Program:
    """The program with a place for every buffer.

    Args:
        program: of all workers.
        every: what each of them has to hold.
        enough_bytes: an arena that takes no more, with what lies inside of segments, need not be smaller.
        limit_bytes: for one that takes more and need not, more work is done.
    """
    arenas: dict[tuple[object, ...], Packed] = {}
    workers = []
    for worker in counted(program.workers, "placing buffers of worker", len(every[0].spans)):
        need = every[worker.worker]
        key = (need.spans, need.workspace_bytes)
        if key not in arenas:
            arenas[key] = best_fit(need.spans, enough_bytes - need.workspace_bytes, limit_bytes - need.workspace_bytes)
        offsets = dict(zip(need.buffers, arenas[key][0], strict=True))
        offsets.update({name: offsets[current] for name, current in need.over.items()})
        workers.append(replace(worker, arena=Arena(arenas[key][1], offsets, need.workspace_bytes)))
    return replace(program, workers=tuple(workers))


def live_spans(program: WorkerProgram, level: Sequence[Sequence[int]], reads: Sequence[LastReads]) -> dict[str, Span]:
    """The spans in which each buffer of a worker is needed.

    Args:
        program: the worker's.
        level: of every step of every worker.
        reads: of the buffers of each worker, the last ones (``waits.last_reads``).
    """
    ready = writers(program)
    local, remote = reads[program.worker].local, reads[program.worker].remote
    mine = level[program.worker]
    last = len(program.steps)
    resident, collected = {*program.loaded, *program.fixed}, set(program.collected)
    spans: dict[str, Span] = {}
    for name, buffer in program.buffers.items():
        if name in resident:
            spans[name] = (buffer.size_bytes, 0, last)
            continue
        first = ready[name] - 1
        if name in collected:
            until = last
        else:
            until = max(first, local.get(name, 0) - 1)
            if name in remote:
                until = max(until, bisect_right(mine, remote[name]) - 1)
        spans[name] = (buffer.size_bytes, first, until)
    return spans


def in_place(
    program: WorkerProgram,
    state: Sequence[StatePair],
    overwrites: Callable[[str, int, int], bool],
    level: Sequence[Sequence[int]],
    reads: Sequence[LastReads],
) -> dict[str, str]:
    """Next states that may be written over their states: by the next state's buffer, the state's.

    Legal if all that reads the state is done, or is the very segment that makes the next state and may write over
    what it reads (``planner.artifacts.in_place``).
    """
    ready = writers(program)
    local, remote = reads[program.worker].local, reads[program.worker].remote
    mine = level[program.worker]
    loaded, collected = set(program.loaded), set(program.collected)
    state_of: dict[str, str] = {}
    for pair in state:
        current, then = pair.current, pair.following
        if current == then or current not in loaded or current in collected or then not in collected or then in loaded:
            continue
        if program.buffers[current].region != program.buffers[then].region:
            continue
        number = ready[then] - 1
        if remote.get(current, -1) >= mine[number]:
            continue
        last = local.get(current, 0) - 1
        step = program.steps[number]
        is_over = last < number
        if last == number and isinstance(step, Segment):
            is_over = overwrites(step.function, step.inputs.index(current), step.outputs.index(then))
        if is_over:
            state_of[then] = current
    return state_of
