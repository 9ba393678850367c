"""What is said where no plan fits into the memory there is."""

from __future__ import annotations

from collections.abc import Sequence

from planner.artifacts.program import Program
from planner.errors import InfeasibleError
from planner.graph.model import Graph
from planner.partition.occupancy import occupancy, tightest
from planner.units import ByteUnit, format_bytes

_SHOWN_TENSORS = 5
_MOST_TIMES_WORKERS = 64
"""A refusal suggests at most 64 times as many workers as there are: what each worker holds does not shrink for ever."""


def does_not_fit(program: Program, graph: Graph, limits: Sequence[int], least: Sequence[int]) -> InfeasibleError:
    """What takes the room in the plan that lacks the least, and what would do.

    Args:
        program: the plan's, with arenas.
        graph: that was planned.
        limits: the memory there is, one entry for each worker, in any order: who needs more has the larger.
        least: what every plan takes at least on all workers together, by op.
    """
    peaks = program.peak_bytes
    worker, limit = tightest(peaks, limits)
    found = occupancy(program, graph.roles, worker, shown=_SHOWN_TENSORS)
    workers = len(peaks)
    facts = [
        f"of worker {worker}, at its fullest: " + ", ".join(f"{_size(size)} {role}" for role, size in found.by_role)
    ]
    fullest = max(range(len(least)), key=least.__getitem__)
    bound = -(-least[fullest] // workers)
    facts.append(f"every plan takes {_size(bound)} at least on some worker, at {graph.ops[fullest].name}")
    facts += [f"{name} ({role}): {_size(size)}" for name, role, size in found.largest]
    enough = max(peaks)
    about = -(-workers * peaks[worker] // max(1, limit))
    others = "so might a smaller batch, but no number of workers"
    if about <= _MOST_TIMES_WORKERS * workers:
        others = f"so might about {about} workers or a smaller batch"
    return InfeasibleError(
        f"no plan was found that fits: worker {worker} needs {_size(peaks[worker])} at least, and has {_size(limit)}",
        facts=tuple(facts),
        hint=f"{_size(enough)} for each of the {workers} workers would do (--memory {enough}B); {others}",
    )


def _size(count: int) -> str:
    return format_bytes(count, ByteUnit.BINARY)
