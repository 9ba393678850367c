"""``tofu explain --view memory``: what a worker holds over the steps of its program."""

from __future__ import annotations

from pathlib import Path

from planner.api.arguments import checked
from planner.api.building import program_of_folder
from planner.api.opened import opened
from planner.artifacts.program import Fetch, WorkerProgram
from planner.collection import without_collection
from planner.errors import UsageError
from planner.graph.core.model import Graph
from planner.graph.step.purposes import passes_in
from planner.partition.occupancy import limits_by_worker, occupancy
from planner.progress import Progress, silent
from planner.results import MemoryResult


@checked
@without_collection()
def memory(
    directory: Path | None = None,
    *,
    worker: int | None = None,
    progress: Progress = silent,
) -> MemoryResult:
    """The memory of a worker's tensors over the steps of its program, by purpose.

    Args:
        directory: the plan's folder; None: the newest in the working directory.
        worker: which; None: the first of those that need most.
        progress: told what is being done.

    Raises:
        TofuError: there is no plan, or no such worker.

    Example:
        ::

            found = planner.memory("plan").occupancy
            for buffer in found.at(found.fullest)[:10]:
                print(buffer.buffer, buffer.purpose.value, buffer.size_bytes)
    """
    progress("reading the plan")
    plan = opened(directory, with_descriptions=False)
    stated, where = plan.folder.plan, plan.folder.path
    if worker is not None and not 0 <= worker < stated.workers:
        raise UsageError(f"{where}: the plan has no worker {worker}", hint=f"its workers are 0 to {stated.workers - 1}")
    program = program_of_folder(plan, progress)
    progress("adding up buffers")
    peaks = program.peak_bytes
    number = peaks.index(max(peaks)) if worker is None else worker
    worker_occupancy, mine = occupancy(program, plan.graph, number), program.workers[number]
    running = mine.steps[worker_occupancy.fullest] if worker_occupancy.fullest < len(mine.steps) else None
    limits = stated.asked.limits
    return MemoryResult(
        plan=stated,
        directory=where,
        occupancy=worker_occupancy,
        peak_bytes=peaks,
        limit_bytes=limits_by_worker(peaks, limits)[number] if limits else None,
        running=() if running is None else running.ops if not isinstance(running, Fetch) else (running.name,),
        begins=begins_of(mine, plan.graph, passes_in(plan.graph).backward),
    )


def begins_of(worker: WorkerProgram, graph: Graph, backward: frozenset[str]) -> dict[str, int]:
    """The steps in which the first op of the backward pass runs, and the first of it that makes a next state."""
    if not graph.state:
        return {}
    updates = {graph.producer[pair.following].name for pair in graph.state if pair.following in graph.producer}
    first_steps: dict[str, int] = {}
    for number, step in enumerate(worker.steps):
        ops = () if isinstance(step, Fetch) else step.ops
        if not backward.isdisjoint(ops):
            first_steps.setdefault("backward", number)
        if not updates.isdisjoint(backward.intersection(ops)):
            first_steps.setdefault("update", number)
    return first_steps
