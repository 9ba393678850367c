"""What a program must be before it may touch memory.

A file with the right digests can still be wrong, and a wrong box would read or write other buffers' memory. So every
name, type and box is checked once, and the order of the steps is simulated: a program that would wait for itself is
refused, never started.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Sequence
from heapq import heappop, heappush

from planner.algebra.region import Region, tile
from planner.artifacts.program import Arena, Fetch, Segment, Step, WorkerProgram
from planner.artifacts.waits import Waits, data_waits, joined_waits, last_local_reads, needs, outputs_of, stuck, writers
from planner.errors import ModelError
from planner.graph.model import StatePair


def check_programs(programs: Sequence[WorkerProgram], state: Sequence[StatePair] = ()) -> tuple[Waits, ...]:
    """Refuses programs that do not fit together; returns what each step of each worker waits for.

    Args:
        programs: of all workers.
        state: which next state may lie where its state lies.

    Raises:
        ModelError: names, types, boxes or order are wrong; with all findings.
    """
    findings: list[str] = []
    waits: tuple[Waits, ...] = ()
    seen: set[Hashable] = set()
    """Pieces by identity, which readers share, with what is asked of them."""
    if [program.worker for program in programs] != list(range(len(programs))):
        findings.append(f"workers are numbered {[program.worker for program in programs]}")
    else:
        for program in programs:
            _check_worker(program, programs, findings, seen)
        for program in programs:
            if program.arena is not None and not findings:
                _check_arena(program, program.arena, state, findings)
        if not findings:
            waits = _check_order(programs, findings)
    if findings:
        raise inconsistent(findings)
    return waits


def _check_worker(
    program: WorkerProgram, programs: Sequence[WorkerProgram], findings: list[str], seen: set[Hashable]
) -> None:
    written = set(program.loaded) | set(program.fixed)
    for name in (*program.loaded, *program.fixed, *program.collected):
        if name not in program.buffers:
            findings.append(f"worker {program.worker}: there is no buffer {name!r}")
    for step in program.steps:
        where = f"worker {program.worker}, {describe(step)}"
        sources = needs(program, step)
        unknown = [
            f"{source.buffer!r} of worker {source.worker}"
            for source in sources
            if not 0 <= source.worker < len(programs) or source.buffer not in programs[source.worker].buffers
        ]
        unknown += [repr(name) for name in outputs_of(step) if name not in program.buffers]
        if unknown:
            findings.append(f"{where}: there is no buffer {', '.join(unknown)}")
            continue
        early = [s.buffer for s in sources if s.worker == program.worker and s.buffer not in written]
        findings.extend(f"{where}: reads {name!r} before it is written" for name in early)
        findings.extend(f"{where}: writes {name!r} again" for name in outputs_of(step) if name in written)
        written.update(outputs_of(step))
        if isinstance(step, Fetch):
            _check_fetch(step, program, programs, where, findings, seen)
    findings.extend(
        f"worker {program.worker}: {name!r} is collected and never written"
        for name in program.collected
        if name not in written
    )


def _check_fetch(
    fetch: Fetch,
    program: WorkerProgram,
    programs: Sequence[WorkerProgram],
    where: str,
    findings: list[str],
    seen: set[Hashable],
) -> None:
    target = program.buffers[fetch.target]
    for piece in fetch.pieces:
        key = id(piece), target.dtype, fetch.reducer
        if key in seen:
            continue
        seen.add(key)
        if len(piece.sources) != 1 and (fetch.reducer is None or not piece.sources):
            findings.append(f"{where}: the piece {piece.region} has {len(piece.sources)} sources and no reducer")
        for source in piece.sources:
            held = programs[source.worker].buffers[source.buffer]
            if held.dtype is not target.dtype:
                findings.append(f"{where}: {source.buffer!r} is of {held.dtype.value}, not {target.dtype.value}")
            if not _fits(piece.region, held.region):
                findings.append(f"{where}: the piece {piece.region} leaves {held.region} of {source.buffer!r}")
    if not tile(tuple([piece.region for piece in fetch.pieces]), target.region):
        findings.append(f"{where}: its pieces do not cover {target.region} exactly once")


def _fits(inner: Region, outer: Region) -> bool:
    return inner.rank == outer.rank and not inner.is_empty and outer.contains(inner)


def _check_order(programs: Sequence[WorkerProgram], findings: list[str]) -> tuple[Waits, ...]:
    """Nothing is read that is never written, and nobody waits for ever, be it for data or for memory."""
    ready = [writers(program) for program in programs]
    findings.extend(
        f"worker {program.worker}, {describe(step)}: {source.buffer!r} of worker {source.worker} is never written"
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
                f"worker {worker} waits for ever in {describe(programs[worker].steps[number])}"
                for worker, number in waiting.items()
            )
            break
    return joined


def _check_arena(program: WorkerProgram, arena: Arena, state: Sequence[StatePair], findings: list[str]) -> None:
    """Every buffer lies in the arena, and two that overlap are never needed at the same time."""
    where = f"worker {program.worker}"
    outside = arena.misplaced(program.buffers)
    findings.extend(f"{where}: {finding}" for finding in outside)
    if outside:
        return
    ready, read = writers(program), last_local_reads(program)
    after = len(program.steps) + 1
    collected, resident = set(program.collected), {*program.loaded, *program.fixed}
    replaced = {(pair.current, pair.following) for pair in state}

    def is_in_place(one: str, two: str) -> bool:
        return (
            (program.buffers[one].tensor, program.buffers[two].tensor) in replaced
            and one in program.loaded
            and two in collected
            and arena.offsets[one] == arena.offsets[two]
            and program.buffers[one].region == program.buffers[two].region
            and read.get(one, 0) <= ready.get(two, after)
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
        others = [other for _, _, other in lying[first:last] if not is_in_place(other, name)]
        findings.extend(
            f"{where}: buffers {other!r} and {name!r} lie in one place at the same time" for other in others
        )
        if not others:
            until = after if name in collected or name in resident else read.get(name, 0)
            heappush(needed, (max(since[name], until), place))
            insort(lying, place)


def inconsistent(findings: Sequence[str]) -> ModelError:
    """What to raise about a program that is not right."""
    return ModelError(
        "the partitioned program is inconsistent",
        facts=tuple(findings),
        hint="plan the model again; if that does not help, it is a bug in tofu",
    )


def describe(step: Step) -> str:
    """A step in words: its kind, its name, and the ops that it computes a part of."""
    if isinstance(step, Segment):
        return f"segment {step.name!r} (ops {', '.join(step.ops)})"
    return f"fetch {step.name!r}"
