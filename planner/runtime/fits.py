"""Whether worker programs are programs of this very model: what they take and give are parts of its tensors."""

from __future__ import annotations

from collections.abc import Sequence

from planner.algebra.region import Region
from planner.errors import ModelError
from planner.graph.model import Graph, Tensor
from planner.program import Buffer, Program, WorkerProgram


def check_fits(program: Program, graph: Graph) -> None:
    """Refuses programs that do not fit their model, before memory is laid out for them.

    Args:
        program: of all workers.
        graph: the whole model.

    Raises:
        ModelError: inputs or outputs are others, or buffers hold what no tensor has; with all findings.
    """
    findings = []
    numbers = [worker.worker for worker in program.workers]
    if numbers != list(range(len(numbers))):
        findings.append(f"workers are numbered {numbers}")
    for kind, said, there in (("inputs", program.inputs, graph.inputs), ("outputs", program.outputs, graph.outputs)):
        if sorted(said) != sorted(there):
            findings.append(f"the {kind} are said to be {', '.join(said)}, and are {', '.join(there)}")
    findings.extend(
        f"state {pair.current!r} or its next {pair.following!r} is not among inputs and outputs"
        for pair in program.state
        if pair.current not in graph.inputs or pair.following not in graph.outputs
    )
    for worker in program.workers:
        findings += _misfits(worker, worker.loaded, graph, graph.inputs)
        findings += _misfits(worker, worker.collected, graph, graph.outputs)
    if not findings:
        findings += [*_gaps(program, graph), *_untied(program)]
    if findings:
        raise ModelError(
            "the worker models do not fit the model",
            facts=tuple(findings),
            hint="plan the model again with `tofu plan`",
        )


def _misfits(worker: WorkerProgram, names: Sequence[str], graph: Graph, tensors: Sequence[str]) -> list[str]:
    found = []
    for name in names:
        buffer = worker.buffers[name]
        fault = "nothing that a worker takes or gives" if buffer.tensor not in tensors else ""
        fault = fault or _misfit(buffer, graph.tensors[buffer.tensor])
        if fault:
            found.append(f"worker {worker.worker}: buffer {name!r} of {buffer.tensor!r}: {fault}")
    return found


def _misfit(buffer: Buffer, tensor: Tensor) -> str:
    whole = Region.whole(tensor.shape)
    if buffer.dtype is not tensor.dtype:
        return f"is of {buffer.dtype.value}, not {tensor.dtype.value}"
    if buffer.region.rank != whole.rank or not whole.contains(buffer.region):
        return f"its region {buffer.region} leaves {whole}"
    return ""


def _gaps(program: Program, graph: Graph) -> list[str]:
    """Outputs of which no worker gives some elements."""
    parts: dict[str, set[Region]] = {name: set() for name in graph.outputs}
    for worker in program.workers:
        for name in worker.collected:
            parts[worker.buffers[name].tensor].add(worker.buffers[name].region)
    found = []
    for name, regions in parts.items():
        missing: tuple[Region, ...] = (Region.whole(graph.tensors[name].shape),) if graph.tensors[name].elements else ()
        for region in regions:
            missing = tuple(rest for part in missing for rest in part.subtract(region))
        if missing:
            found.append(f"no worker gives {missing[0]} of output {name!r}")
    return found


def _untied(program: Program) -> list[str]:
    """States of which a worker takes a tile whose next value it does not give."""
    found: list[str] = []
    for worker in program.workers:
        taken = {(worker.buffers[name].tensor, worker.buffers[name].region) for name in worker.loaded}
        given = {(worker.buffers[name].tensor, worker.buffers[name].region) for name in worker.collected}
        for pair in program.state:
            found.extend(
                f"worker {worker.worker} takes {region} of {tensor!r}, and does not give its next value"
                for tensor, region in sorted(taken, key=str)
                if tensor == pair.current and (pair.following, region) not in given
            )
    return found
