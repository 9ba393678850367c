"""Checks of a program before it touches memory.

A file with the right digests can still be wrong, and a wrong box would read or write other buffers' memory. So every
name, type and box is checked once, and the order of the steps is simulated: a program that would wait for itself is
refused, never started.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from onnx import FunctionProto

from planner.algebra.region import Region, tile
from planner.artifacts.in_place import overwriting
from planner.artifacts.program import Arena, Fetch, Segment, Step, WorkerProgram
from planner.artifacts.waits import Waits, data_waits, joined_waits, last_local_reads, needs, outputs_of, stuck, writers
from planner.errors import ModelError
from planner.graph.core.model import StatePair


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a program."""

    worker: int | None
    """None: all of them."""
    what: str
    step: Step | None = None
    """None: no step alone."""
    buffer: str = ""
    """The worker's buffer that it is of; "" where it is of several or none."""

    def __str__(self) -> str:
        where = [] if self.worker is None else [f"worker {self.worker}"]
        where += [] if self.step is None else [describe(self.step)]
        return f"{', '.join(where)}: {self.what}" if where else self.what


class InconsistentError(ModelError):
    """A program that is not right.

    Args:
        findings: all that is wrong with it.
    """

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__(
            "the partitioned program is inconsistent",
            facts=tuple(map(str, findings)),
            hint="plan the model again; if that does not help, it is a bug in tofu",
        )
        self.findings = tuple(findings)


def check_programs(programs: Sequence[WorkerProgram], state: Sequence[StatePair] = ()) -> tuple[Waits, ...]:
    """Refuses programs that do not fit together; returns what each step of each worker waits for.

    Args:
        programs: of all workers.
        state: which next state may lie where its state lies.

    Raises:
        InconsistentError: names, types, boxes or order are wrong; with all findings.
    """
    findings: list[Finding] = []
    waits: tuple[Waits, ...] = ()
    seen: set[Hashable] = set()
    """Pieces by identity, which readers share, with what is asked of them."""
    if [program.worker for program in programs] != list(range(len(programs))):
        findings.append(Finding(None, f"workers are numbered {[program.worker for program in programs]}"))
    else:
        for program in programs:
            _check_worker(program, programs, findings, seen)
        for program in programs:
            if program.arena is not None and not findings:
                _check_arena(program, program.arena, state, findings)
        if not findings:
            waits = _check_order(programs, findings)
    if findings:
        raise InconsistentError(findings)
    return waits


def check_overwriting(program: WorkerProgram, functions: Mapping[str, FunctionProto]) -> None:
    """Refuses a worker with a segment that writes over what it reads, unless ``planner.artifacts.in_place`` allows it.

    Args:
        program: the worker's; one that ``check_programs`` accepts.
        functions: of its segments, by name.

    Raises:
        InconsistentError: with all such segments.
    """
    findings: list[Finding] = []
    is_over = overwriting(functions)
    offsets = {} if program.arena is None else program.arena.offsets
    for step in program.steps:
        if isinstance(step, Segment) and offsets:
            at: dict[int, list[int]] = {}
            for slot, name in enumerate(step.inputs):
                at.setdefault(offsets[name], []).append(slot)
            findings.extend(
                Finding(program.worker, f"writes {name!r} over {step.inputs[slot]!r} while it reads that", step, name)
                for target, name in enumerate(step.outputs)
                for slot in at.get(offsets[name], ())
                if not is_over(step.function, slot, target)
            )
    if findings:
        raise InconsistentError(findings)


def _check_worker(
    program: WorkerProgram, programs: Sequence[WorkerProgram], findings: list[Finding], seen: set[Hashable]
) -> None:
    written = set(program.loaded) | set(program.fixed)
    for name in (*program.loaded, *program.fixed, *program.collected):
        if name not in program.buffers:
            findings.append(Finding(program.worker, f"there is no buffer {name!r}", buffer=name))
    for step in program.steps:
        sources = needs(program, step)
        unknown = [
            f"{source.buffer!r} of worker {source.worker}"
            for source in sources
            if not 0 <= source.worker < len(programs) or source.buffer not in programs[source.worker].buffers
        ]
        unknown += [repr(name) for name in outputs_of(step) if name not in program.buffers]
        if unknown:
            findings.append(Finding(program.worker, f"there is no buffer {', '.join(unknown)}", step))
            # A step on missing buffers has no order or shapes to check.
            continue
        early = [s.buffer for s in sources if s.worker == program.worker and s.buffer not in written]
        again = [name for name in outputs_of(step) if name in written]
        findings.extend(Finding(program.worker, f"reads {name!r} before it is written", step, name) for name in early)
        findings.extend(Finding(program.worker, f"writes {name!r} again", step, name) for name in again)
        written.update(outputs_of(step))
        if isinstance(step, Fetch):
            _check_fetch(step, program, programs, findings, seen)
    findings.extend(
        Finding(program.worker, f"{name!r} is collected and never written", buffer=name)
        for name in program.collected
        if name not in written
    )


def _check_fetch(
    fetch: Fetch,
    program: WorkerProgram,
    programs: Sequence[WorkerProgram],
    findings: list[Finding],
    seen: set[Hashable],
) -> None:
    target = program.buffers[fetch.target]

    def is_wrong(text: str) -> None:
        findings.append(Finding(program.worker, text, fetch, target.name))

    for piece in fetch.pieces:
        key = id(piece), target.dtype, fetch.reducer
        if key in seen:
            continue
        seen.add(key)
        if len(piece.sources) != 1 and (fetch.reducer is None or not piece.sources):
            is_wrong(f"the piece {piece.region} has {len(piece.sources)} sources and no reducer")
        for source in piece.sources:
            held = programs[source.worker].buffers[source.buffer]
            if held.dtype is not target.dtype:
                is_wrong(f"{source.buffer!r} is of {held.dtype.value}, not {target.dtype.value}")
            if not _fits(piece.region, held.region):
                is_wrong(f"the piece {piece.region} leaves {held.region} of {source.buffer!r}")
    if not tile(tuple([piece.region for piece in fetch.pieces]), target.region):
        is_wrong(f"its pieces do not cover {target.region} exactly once")


def _fits(inner: Region, outer: Region) -> bool:
    return inner.rank == outer.rank and not inner.is_empty and outer.contains(inner)


def _check_order(programs: Sequence[WorkerProgram], findings: list[Finding]) -> tuple[Waits, ...]:
    """Nothing is read that is never written, and nobody waits for ever, be it for data or for memory."""
    ready = [writers(program) for program in programs]
    findings.extend(
        Finding(program.worker, f"{source.buffer!r} of worker {source.worker} is never written", step)
        for program in programs
        for step in program.steps
        for source in needs(program, step)
        if source.buffer not in ready[source.worker]
    )
    if findings:
        return ()
    joined = joined_waits(programs)
    for waits in (data_waits(programs), joined):
        waiting = stuck(waits)
        if waiting:
            findings.extend(
                Finding(worker, "waits for ever", programs[worker].steps[number]) for worker, number in waiting.items()
            )
            break
    return joined


def _check_arena(program: WorkerProgram, arena: Arena, state: Sequence[StatePair], findings: list[Finding]) -> None:
    """Every buffer lies in the arena, and two that overlap are never needed at the same time."""
    outside = arena.misplaced(program.buffers)
    findings.extend(Finding(program.worker, finding) for finding in outside)
    if outside:
        return
    ready, read = writers(program), last_local_reads(program)
    after = len(program.steps) + 1
    collected, resident = set(program.collected), {*program.loaded, *program.fixed}
    replaced = {(pair.current, pair.following) for pair in state}
    computing = {number for number, step in enumerate(program.steps, start=1) if isinstance(step, Segment)}
    """Steps that may write over what they read (``check_overwriting``); a fetch may not."""

    def is_in_place(current: str, following: str) -> bool:
        return (
            (program.buffers[current].tensor, program.buffers[following].tensor) in replaced
            and current in program.loaded
            and following in collected
            and arena.offsets[current] == arena.offsets[following]
            and program.buffers[current].region == program.buffers[following].region
            and read.get(current, 0) < ready.get(following, after) + (ready.get(following) in computing)
        )

    since = {name: ready.get(name, after) for name in program.buffers}
    needed: list[tuple[int, tuple[int, int, str]]] = []
    """Until when each buffer that lies there is needed, as a heap, with its place and name."""
    lying: list[tuple[int, int, str]] = []
    """The same, by place: beside each other, but for states in place."""
    for name in sorted(since, key=since.__getitem__):
        while needed and needed[0][0] < since[name]:
            del lying[bisect_left(lying, heappop(needed)[1])]
        start = arena.offsets[name]
        place = start, start + program.buffers[name].size_bytes, name
        first = last = bisect_left(lying, place)
        while first and lying[first - 1][1] > start:
            first -= 1
        while last < len(lying) and lying[last][0] < place[1]:
            last += 1
        occupants = [occupant for _, _, occupant in lying[first:last] if not is_in_place(occupant, name)]
        findings.extend(
            Finding(program.worker, f"buffers {occupant!r} and {name!r} lie in one place at the same time", buffer=name)
            for occupant in occupants
        )
        # A buffer that overlaps is reported and left out: the bisections need places in one ascending order.
        if not occupants:
            until = after if name in collected or name in resident else read.get(name, 0)
            heappush(needed, (max(since[name], until), place))
            insort(lying, place)


def describe(step: Step) -> str:
    """A step in words: its kind, its name, and the ops that it computes a part of."""
    if isinstance(step, Segment):
        return f"segment {step.name!r} (ops {', '.join(step.ops)})"
    return f"fetch {step.name!r}"
