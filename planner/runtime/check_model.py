"""Whether a plan's worker models and its manifest are those of its model.

The worker models name tensors of the model: each tile that is loaded before a step must be a part of an input, or of a
constant that the model does not hold, and each that is collected afterwards a part of an output. The manifest states
inputs, outputs and state pairs, which the model states, too. A run that believed an edited file would fail in the
middle, or give wrong numbers. A wrong state pair would even pass ``--verify``: the whole model and the workers both go
on from the next state that the manifest names.

Whether the steps of the workers fit together is checked elsewhere (``check.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from planner.algebra.region import Region, index_space
from planner.artifacts.program import Buffer, Program, WorkerProgram
from planner.errors import ModelError
from planner.graph.core.model import Graph, StatePair

_SHOWN: Final = 4
"""Names in a finding."""


def check_against_model(graph: Graph, program: Program, where: str) -> None:
    """Refuses a program that is not one of this model.

    Args:
        graph: the model that was planned, as its file says, with the state pairs of the file.
        program: the workers as ``read_worker_model`` gives them; inputs, outputs and state as the manifest has them.
        where: the plan's folder, for the message.

    Raises:
        ModelError: with all findings.
    """
    findings: list[str] = []
    for kind, stated, model_names in (
        ("inputs", program.inputs, graph.inputs),
        ("outputs", program.outputs, graph.outputs),
        ("state", _pairs(program.state), _pairs(graph.state)),
    ):
        stated_count, wanted = Counter(stated), Counter(model_names)
        strange = [*(stated_count - wanted), *(wanted - stated_count)]
        if strange:
            shown = ", ".join(repr(name) for name in strange[:_SHOWN])
            findings.append(f"the manifest's {kind} are not the model's: {shown}")
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


def _check_tiles(graph: Graph, program: Program, findings: list[str]) -> None:
    """Every tile that is loaded or collected is one of the model, and the tiles of each output cover it."""
    input_names = {*graph.inputs, *(name for name, value in graph.constants.items() if value is None)}
    held: dict[str, list[Region]] = {name: [] for name in graph.outputs}
    for worker in program.workers:
        for name in dict.fromkeys((*worker.loaded, *worker.collected)):
            buffer = worker.buffers[name]
            is_known = buffer.tensor in input_names if name in worker.loaded else buffer.tensor in held
            if not is_known:
                kind = "input" if name in worker.loaded else "output"
                findings.append(f"worker {worker.worker}: {name!r} is of {buffer.tensor!r}, which is no {kind}")
            else:
                findings.extend(_misfit(graph, worker.worker, buffer))
                if name in worker.collected and buffer.tensor in held:
                    held[buffer.tensor].append(buffer.region)
        findings.extend(_state_findings(worker, program.state))
    if not findings:
        findings.extend(
            f"the workers do not collect all of {name!r}"
            for name, regions in held.items()
            if graph.tensors[name].elements and not _covers(regions, _space_of(graph, name))
        )


def _misfit(graph: Graph, worker: int, buffer: Buffer) -> list[str]:
    """A finding if a buffer is no box of its tensor, or of another dtype."""
    tensor = graph.tensors[buffer.tensor]
    space = _space_of(graph, buffer.tensor)
    if buffer.region.rank != space.rank or not space.contains(buffer.region):
        return [f"worker {worker}: {buffer.name!r} is the box {buffer.region} of {buffer.tensor!r}, which is {space}"]
    if buffer.dtype is not tensor.dtype:
        return [
            f"worker {worker}: {buffer.name!r} is of {buffer.dtype.value}, and {buffer.tensor!r} {tensor.dtype.value}"
        ]
    return []


def _state_findings(worker: WorkerProgram, state: Sequence[StatePair]) -> list[str]:
    """Tiles of state that a worker loads, and does not collect the same tile of the next state."""
    loaded, collected = (
        {(worker.buffers[name].tensor, worker.buffers[name].region) for name in names}
        for names in (worker.loaded, worker.collected)
    )
    following = {pair.current: pair.following for pair in state}
    return [
        f"worker {worker.worker} gets {tensor!r} {region} and does not make its next value"
        for tensor, region in sorted(loaded, key=str)
        if tensor in following and (following[tensor], region) not in collected
    ]


def _space_of(graph: Graph, name: str) -> Region:
    return Region.whole(index_space(graph.tensors[name].shape))


def _covers(regions: Sequence[Region], space: Region) -> bool:
    """Whether every element of the space is in one of the regions at least."""
    missing: tuple[Region, ...] = (space,)
    for region in dict.fromkeys(regions):
        missing = tuple(piece for part in missing for piece in part.subtract(region))
    return not missing
