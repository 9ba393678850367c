"""A program in terms of the model, or of the form of it that was planned, where that has tensors by their parts.

Files and runs name what the model names: the buffer of a part holds a box of the whole, and a worker may hold several
boxes of one tensor. The plan, and a proof, know each part as a tensor of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from planner.algebra.region import Region
from planner.artifacts.program import Fetch, Program, Step, WorkerProgram
from planner.graph.core.model import Graph
from planner.graph.rewriting.packing import Placed


def of_model(program: Program, model: Graph, boxes: Mapping[str, Placed]) -> Program:
    """A program of the form that was planned as one of the model.

    Args:
        program: of the form.
        model: as it was read.
        boxes: of its parts (``Canonical.boxes``).
    """

    def placed(tensor: str, region: Region) -> Placed:
        origin, box = boxes.get(tensor, (tensor, None))
        return origin, region if box is None else region.moved(box.lo)

    return _named(program, model, placed) if boxes else program


def of_form(program: Program, form: Graph, boxes: Mapping[str, Placed]) -> Program:
    """A program of a model as one of the form that was planned; what lies in no part stays.

    Args:
        program: of the model, as its files say.
        form: that was planned.
        boxes: of its parts (``Canonical.boxes``).
    """
    parts: dict[str, list[tuple[str, Region]]] = {}
    for part, (origin, box) in boxes.items():
        parts.setdefault(origin, []).append((part, box))

    def placed(tensor: str, region: Region) -> Placed:
        for part, box in parts.get(tensor, ()):
            if box.rank == region.rank and box.contains(region):
                return part, region.moved([-at for at in box.lo])
        return tensor, region

    return _named(program, form, placed) if boxes else program


def _named(program: Program, ends: Graph, placed: Callable[[str, Region], Placed]) -> Program:
    """A program with other names, and places, of tensors."""
    workers = tuple(_worker(worker, placed) for worker in program.workers)
    return Program(workers, ends.inputs, ends.outputs, ends.state)


def _worker(worker: WorkerProgram, placed: Callable[[str, Region], Placed]) -> WorkerProgram:
    buffers = {
        name: replace(buffer, tensor=tensor, region=region)
        for name, buffer in worker.buffers.items()
        for tensor, region in [placed(buffer.tensor, buffer.region)]
    }

    def step(original: Step) -> Step:
        if not isinstance(original, Fetch) or buffers[original.target].tensor == worker.buffers[original.target].tensor:
            return original
        tensor = worker.buffers[original.target].tensor
        return replace(
            original, pieces=tuple(replace(piece, region=placed(tensor, piece.region)[1]) for piece in original.pieces)
        )

    return replace(worker, buffers=buffers, steps=tuple(map(step, worker.steps)))
