"""What a program must be before it may touch memory.

A file with the right digests can still be wrong, and a wrong box would read or write other buffers' memory. So every
name, type and box is checked once, and the order of the steps is simulated: a program that would wait for itself is
refused, never started.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.algebra.region import Boxes, Region
from planner.errors import ModelError
from planner.program import Fetch, Piece, Segment, Source, Step, WorkerProgram

_LISTED = 20


def writers(program: WorkerProgram) -> dict[str, int]:
    """The number of the step after which each buffer is ready, counted from 1; 0 where it is so from the beginning."""
    ready = dict.fromkeys((*program.loaded, *program.fixed), 0)
    for number, step in enumerate(program.steps):
        for name in outputs_of(step):
            ready[name] = number + 1
    return ready


def outputs_of(step: Step) -> tuple[str, ...]:
    """The buffers that a step writes."""
    return (step.target,) if isinstance(step, Fetch) else step.outputs


def needs(program: WorkerProgram, step: Step) -> tuple[Source, ...]:
    """The buffers, here and on other workers, that a step reads."""
    if isinstance(step, Fetch):
        return tuple(dict.fromkeys(source for piece in step.pieces for source in piece.sources))
    return tuple(Source(program.worker, name) for name in dict.fromkeys(step.inputs))


def check_programs(programs: Sequence[WorkerProgram]) -> None:
    """Refuses programs that do not fit together.

    Raises:
        ModelError: names, types, boxes or order are wrong; with all findings.
    """
    findings: list[str] = []
    if [program.worker for program in programs] != list(range(len(programs))):
        findings.append(f"workers are numbered {[program.worker for program in programs]}")
    else:
        for program in programs:
            _check_worker(program, programs, findings)
        if not findings:
            _check_order(programs, findings)
    if findings:
        rest = [f"and {len(findings) - _LISTED} more"] if len(findings) > _LISTED else []
        raise ModelError(
            "the partitioned program is inconsistent",
            facts=(*findings[:_LISTED], *rest),
            hint="plan the model again; if that does not help, it is a bug in tofu",
        )


def _check_worker(program: WorkerProgram, programs: Sequence[WorkerProgram], findings: list[str]) -> None:
    written = set(program.loaded) | set(program.fixed)
    for name in (*program.loaded, *program.fixed, *program.collected):
        if name not in program.buffers:
            findings.append(f"worker {program.worker}: there is no buffer {name!r}")
    for step in program.steps:
        where = f"worker {program.worker}, {describe(step)}"
        unknown = [
            f"{source.buffer!r} of worker {source.worker}"
            for source in needs(program, step)
            if not 0 <= source.worker < len(programs) or source.buffer not in programs[source.worker].buffers
        ]
        unknown += [repr(name) for name in outputs_of(step) if name not in program.buffers]
        if unknown:
            findings.append(f"{where}: there is no buffer {', '.join(unknown)}")
            continue
        early = [s.buffer for s in needs(program, step) if s.worker == program.worker and s.buffer not in written]
        findings.extend(f"{where}: reads {name!r} before it is written" for name in early)
        findings.extend(f"{where}: writes {name!r} again" for name in outputs_of(step) if name in written)
        written.update(outputs_of(step))
        if isinstance(step, Fetch):
            _check_fetch(step, program, programs, where, findings)
    findings.extend(
        f"worker {program.worker}: {name!r} is collected and never written"
        for name in program.collected
        if name not in written
    )


def _check_fetch(
    fetch: Fetch, program: WorkerProgram, programs: Sequence[WorkerProgram], where: str, findings: list[str]
) -> None:
    target = program.buffers[fetch.target]
    for piece in fetch.pieces:
        if len(piece.sources) != 1 and (fetch.reducer is None or not piece.sources):
            findings.append(f"{where}: the piece {piece.region} has {len(piece.sources)} sources and no reducer")
        for source in piece.sources:
            held = programs[source.worker].buffers[source.buffer]
            if held.dtype is not target.dtype:
                findings.append(f"{where}: {source.buffer!r} is of {held.dtype.value}, not {target.dtype.value}")
            if not _fits(piece.region, held.region):
                findings.append(f"{where}: the piece {piece.region} leaves {held.region} of {source.buffer!r}")
    if not all(_fits(piece.region, target.region) for piece in fetch.pieces) or not _tile(fetch.pieces, target.region):
        findings.append(f"{where}: its pieces do not cover {target.region} exactly once")


def _fits(inner: Region, outer: Region) -> bool:
    return inner.rank == outer.rank and not inner.is_empty and outer.contains(inner)


def _tile(pieces: Sequence[Piece], region: Region) -> bool:
    if sum(piece.region.elements for piece in pieces) != region.elements:
        return False
    boxes = Boxes(np.array([piece.region.lo for piece in pieces]), np.array([piece.region.hi for piece in pieces]))
    return int(boxes.cross_overlap(boxes).sum()) == region.elements


def _check_order(programs: Sequence[WorkerProgram], findings: list[str]) -> None:
    """Every worker goes as far as it can, in turn, until all are done or none can go on."""
    ready = [writers(program) for program in programs]
    for program in programs:
        for step in program.steps:
            for source in needs(program, step):
                if source.buffer not in ready[source.worker]:
                    findings.append(
                        f"worker {program.worker}, {describe(step)}: {source.buffer!r} of worker {source.worker} "
                        "is never written"
                    )
    done = [0] * len(programs)
    moving = not findings
    while moving:
        moving = False
        for worker, program in enumerate(programs):
            while done[worker] < len(program.steps):
                step = program.steps[done[worker]]
                if any(ready[source.worker][source.buffer] > done[source.worker] for source in needs(program, step)):
                    break
                done[worker] += 1
                moving = True
    if not findings:
        findings.extend(
            f"worker {program.worker} waits for ever in {describe(program.steps[number])}"
            for program, number in zip(programs, done, strict=True)
            if number < len(program.steps)
        )


def describe(step: Step) -> str:
    """A step in words: its kind, its name, and the ops that it computes a part of."""
    if isinstance(step, Segment):
        return f"segment {step.name!r} (ops {', '.join(step.ops)})"
    return f"fetch {step.name!r}"
