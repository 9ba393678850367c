"""Whether a plan's workers and its manifest are those of its model.

What a run fills and reads by name is looked up in the model: a tile of a tensor that the model has not, or of another
dtype, or that leaves its shape, would be found out in the middle of a run, or not at all. State pairs are checked most
of all: whole model and workers are both told what replaces what by the manifest, so that no comparison would find a
wrong pair.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.algebra.region import Region, index_space
from planner.errors import ModelError
from planner.graph.model import Graph, StatePair
from planner.program import Buffer, Program


def check_against_model(graph: Graph, program: Program, where: str) -> None:
    """Refuses a program, with inputs, outputs and state of the manifest, that is not one of this model.

    Args:
        graph: the model that was planned, as its file says, with the state pairs of the file.
        program: what the worker models and the manifest say.
        where: the plan's folder, for the message.

    Raises:
        ModelError: with all findings.
    """
    findings: list[str] = []
    for kind, stated, own in (
        ("inputs", program.inputs, graph.inputs),
        ("outputs", program.outputs, graph.outputs),
        ("state", _pairs(program.state), _pairs(graph.state)),
    ):
        if sorted(stated) != sorted(own):
            strange = [repr(name) for name in (*_more(stated, own), *_more(own, stated))]
            findings.append(f"the manifest's {kind} are not the model's: {', '.join(strange[:4])}")
    if [worker.worker for worker in program.workers] != list(range(len(program.workers))):
        findings.append(f"workers are numbered {[worker.worker for worker in program.workers]}")
    if not findings:
        _check_tiles(graph, program, findings)
    if findings:
        raise ModelError(
            f"{where}: the plan's files do not belong together",
            facts=tuple(findings),
            hint="plan the model again with `tofu plan`",
        )


def _pairs(state: Sequence[StatePair]) -> tuple[str, ...]:
    return tuple(f"{pair.current} -> {pair.following}" for pair in state)


def _more(some: Sequence[str], others: Sequence[str]) -> list[str]:
    """What is in one list and not, or not as often, in the other."""
    left = list(others)
    found = []
    for name in some:
        if name in left:
            left.remove(name)
        else:
            found.append(name)
    return found


def _check_tiles(graph: Graph, program: Program, findings: list[str]) -> None:
    given = {*graph.inputs, *(name for name, value in graph.constants.items() if value is None)}
    held: dict[str, list[Region]] = {name: [] for name in graph.outputs}
    for worker in program.workers:
        for name in dict.fromkeys((*worker.loaded, *worker.collected)):
            buffer = worker.buffers[name]
            is_known = buffer.tensor in given if name in worker.loaded else buffer.tensor in held
            if not is_known:
                kind = "input" if name in worker.loaded else "output"
                findings.append(f"worker {worker.worker}: {name!r} is of {buffer.tensor!r}, which is no {kind}")
            else:
                findings.extend(_misfit(graph, worker.worker, buffer))
                if name in worker.collected and buffer.tensor in held:
                    held[buffer.tensor].append(buffer.region)
        findings.extend(_state_findings(program, worker.worker))
    if not findings:
        findings.extend(
            f"no worker collects all of {name!r}"
            for name, regions in held.items()
            if graph.tensors[name].elements and not _covers(regions, _whole(graph, name))
        )


def _misfit(graph: Graph, worker: int, buffer: Buffer) -> list[str]:
    tensor = graph.tensors[buffer.tensor]
    space = _whole(graph, buffer.tensor)
    if buffer.region.rank != space.rank or not space.contains(buffer.region):
        return [f"worker {worker}: {buffer.name!r} is the box {buffer.region} of {buffer.tensor!r}, which is {space}"]
    if buffer.dtype is not tensor.dtype:
        return [
            f"worker {worker}: {buffer.name!r} is of {buffer.dtype.value}, and {buffer.tensor!r} {tensor.dtype.value}"
        ]
    return []


def _state_findings(program: Program, number: int) -> list[str]:
    worker = program.workers[number]
    loaded, collected = (
        {(worker.buffers[name].tensor, worker.buffers[name].region) for name in names}
        for names in (worker.loaded, worker.collected)
    )
    following = {pair.current: pair.following for pair in program.state}
    return [
        f"worker {number} gets {tensor!r} {region} and does not make its next value"
        for tensor, region in sorted(loaded, key=str)
        if tensor in following and (following[tensor], region) not in collected
    ]


def _whole(graph: Graph, name: str) -> Region:
    return Region.whole(index_space(graph.tensors[name].shape))


def _covers(regions: Sequence[Region], space: Region) -> bool:
    missing: tuple[Region, ...] = (space,)
    for region in dict.fromkeys(regions):
        missing = tuple(rest for part in missing for rest in part.subtract(region))
    return not missing
