"""What takes the room on a worker: the buffers that are there when its arena is fullest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.artifacts.program import Program
from planner.artifacts.waits import last_reads, levels
from planner.graph.model import Role
from planner.partition.memory import live_spans


@dataclass(frozen=True, slots=True)
class Occupancy:
    """A worker's memory at its fullest."""

    worker: int
    total_bytes: int
    """The arena, and the tensors inside of segments."""
    by_role: tuple[tuple[str, int], ...]
    """Bytes by what the tensors are to the training step, the largest first; the rest is gaps and workspace."""
    largest: tuple[tuple[str, str, int], ...]
    """Buffers with the role and the bytes of each, the largest first."""


def occupancy(program: Program, roles: Mapping[str, Role], worker: int, *, shown: int = 5) -> Occupancy:
    """What is there at the step of a worker at which the most is needed at once.

    Args:
        program: with arenas.
        roles: of the graph's tensors; a buffer of what is no tensor there is a part of a constant.
        worker: which.
        shown: how many buffers to name.
    """
    mine = program.workers[worker]
    assert mine.arena is not None, "memory has been laid out"
    level = levels(program.workers)
    spans = live_spans(mine, level, last_reads(program.workers, level))
    offsets = mine.arena.offsets
    # A next state that is written over its state takes no room of its own.
    over = {
        pair.following
        for pair in program.state
        if pair.following in spans and offsets[pair.following] == offsets[pair.current]
    }
    kept = {name: span for name, span in spans.items() if name not in over}
    fullest = max(
        range(len(mine.steps) + 1),
        key=lambda step: sum(size for size, first, last in kept.values() if first <= step <= last),
    )
    sizes: dict[str, int] = {}
    named: list[tuple[str, str, int]] = []
    for name, (size, first, last) in kept.items():
        if first <= fullest <= last:
            role = _role(mine.buffers[name].tensor, name, roles)
            sizes[role] = sizes.get(role, 0) + size
            named.append((name, role, size))
    if mine.workspace_bytes:
        sizes["inside of segments"] = mine.workspace_bytes
    return Occupancy(
        worker,
        mine.arena_bytes + mine.workspace_bytes,
        tuple(sorted(sizes.items(), key=lambda item: (-item[1], item[0]))),
        tuple(sorted(named, key=lambda item: (-item[2], item[0]))[:shown]),
    )


def _role(tensor: str, buffer: str, roles: Mapping[str, Role]) -> str:
    """What a buffer is for: its tensor's role, or the part of one that was fetched or is not joined yet."""
    role = roles.get(tensor, Role.CONSTANT).value
    return role if buffer == tensor else f"fetched or partial {role}"


def tightest(peak_bytes: Sequence[int], limits: Sequence[int]) -> tuple[int, int]:
    """The worker that lacks the most memory, or has the least to spare, and how much it has.

    Args:
        peak_bytes: what each worker needs.
        limits: the memory there is, in any order: who needs more has the larger.
    """
    workers = sorted(range(len(peak_bytes)), key=lambda worker: (peak_bytes[worker], -worker))
    given = list(zip(workers, sorted(limits), strict=True))
    return max(given, key=lambda pair: peak_bytes[pair[0]] - pair[1])
