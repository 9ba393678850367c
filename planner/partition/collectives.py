"""Patterns of fetches that are collectives, for engines that have those.

The fetches of one name on all workers are one exchange of one tensor; workers that take nothing from each other are
apart. What each group does has the name that MPI gives it:

    reduce-scatter  everyone reduces its own, disjoint part of what all have
    all-reduce      everyone reduces all of it; or a reduce-scatter whose parts an all-gather then spreads
    reduce          one worker reduces
    all-gather      everyone assembles the same region from disjoint parts of the others
    all-to-all      everyone assembles a region of its own, with parts from every other one
    broadcast       several take the same from one
    exchange        anything else: halos, and conversions between tilings that are none of the above

Such a fetch may be executed as it stands, or by the collective: both give what the plan says and move as many bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypedDict

from planner.algebra.region import Region
from planner.artifacts.program import Fetch, Program

KINDS = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "reduce", "broadcast", "exchange")


@dataclass(frozen=True, slots=True)
class Collective:
    """Fetches that are one collective."""

    kind: str
    """One of ``KINDS``."""
    tensor: str
    workers: tuple[int, ...]
    """Who takes part, in order."""
    fetches: tuple[str, ...]
    """Names of the fetches; an all-reduce in two phases has two."""
    moved_bytes: int
    """Between workers, in all."""


def collectives(program: Program) -> tuple[Collective, ...]:
    """Every group of fetches that crosses between workers, in the order in which they first occur."""
    rounds: dict[tuple[str, str], dict[int, Fetch]] = {}
    for worker in program.workers:
        for step in worker.steps:
            if isinstance(step, Fetch):
                rounds.setdefault((step.name, worker.buffers[step.target].tensor), {})[worker.worker] = step
    patterns: list[Collective] = []
    for (name, tensor), fetches in rounds.items():
        for group in _groups(fetches):
            mine = {worker: fetches[worker] for worker in group if worker in fetches}
            moved = sum(fetch.predicted_bytes for fetch in mine.values())
            if moved:
                regions = {
                    worker: program.workers[worker].buffers[fetch.target].region for worker, fetch in mine.items()
                }
                patterns.append(Collective(_kind(group, mine, regions), tensor, group, (name,), moved))
    return tuple(_joined(patterns))


class Collected(TypedDict):
    """The sum of collectives of one kind."""

    count: int
    moved_bytes: int


def counted(patterns: Iterable[Collective]) -> dict[str, Collected]:
    """The number of collectives of each kind, and the bytes that they move."""
    totals = {kind: Collected(count=0, moved_bytes=0) for kind in KINDS}
    for collective in patterns:
        totals[collective.kind]["count"] += 1
        totals[collective.kind]["moved_bytes"] += collective.moved_bytes
    return {kind: total for kind, total in totals.items() if total["count"]}


def _groups(fetches: Mapping[int, Fetch]) -> list[tuple[int, ...]]:
    """Workers that are tied by what they take from each other."""
    group_of: dict[int, set[int]] = {}
    for worker, fetch in fetches.items():
        joined = {source.worker for piece in fetch.pieces for source in piece.sources}
        joined.add(worker)
        if len(joined) == 1 and worker in group_of:
            continue
        for member in tuple(joined):
            joined |= group_of.get(member, set())
        for member in joined:
            group_of[member] = joined
    return sorted({tuple(sorted(group)) for group in group_of.values()})


def _kind(group: tuple[int, ...], fetches: Mapping[int, Fetch], regions: Mapping[int, Region]) -> str:
    everyone = set(group)
    givers = {
        worker: {source.worker for piece in fetch.pieces for source in piece.sources}
        for worker, fetch in fetches.items()
    }
    distinct = set(regions.values())
    are_disjoint = len(distinct) == len(regions) and _are_disjoint(frozenset(distinct))
    # A collective that reduces takes from its whole group, one that copies from all but the worker itself.
    if any(fetch.reducer is not None for fetch in fetches.values()):
        if any({source.worker for source in piece.sources} != everyone for f in fetches.values() for piece in f.pieces):
            return "exchange"
        if len(fetches) == 1:
            return "reduce"
        if are_disjoint:
            return "reduce-scatter"
        return "all-reduce" if len(distinct) == 1 and set(fetches) == everyone else "exchange"
    remote = {worker: senders - {worker} for worker, senders in givers.items()}
    sources = set().union(*remote.values())
    if len(sources) == 1 and len(distinct) == 1:
        return "broadcast"
    if set(fetches) != everyone:
        return "exchange"
    if len(distinct) == 1 and all(senders == everyone - {worker} for worker, senders in remote.items()):
        return "all-gather"
    if are_disjoint and all(senders == everyone - {worker} for worker, senders in remote.items()):
        return "all-to-all"
    return "exchange"


@lru_cache(maxsize=4096)
def _are_disjoint(regions: frozenset[Region]) -> bool:
    """Equal layers ask of equal regions."""
    listed = list(regions)
    return all(box.intersect(peer).is_empty for position, box in enumerate(listed) for peer in listed[position + 1 :])


def _joined(patterns: list[Collective]) -> Iterable[Collective]:
    """A reduce-scatter and the all-gather of its parts are one all-reduce."""
    scattered = {(item.tensor, item.workers): item for item in patterns if item.kind == "reduce-scatter"}
    gathered = {(item.tensor, item.workers): item for item in patterns if item.kind == "all-gather"}
    for item in patterns:
        key = (item.tensor, item.workers)
        is_first, is_second = scattered.get(key) is item, gathered.get(key) is item
        if is_first and key in gathered and _phases(item, gathered[key]):
            second = gathered[key]
            yield Collective(
                "all-reduce", item.tensor, item.workers, (*item.fetches, *second.fetches),
                item.moved_bytes + second.moved_bytes,
            )  # fmt: skip
        elif not (is_second and key in scattered and _phases(scattered[key], item)):
            yield item


def _phases(scatter: Collective, gather: Collective) -> bool:
    """True if the second spreads what the first has reduced: the tensor's own tile, from parts of that name."""
    return scatter.fetches == (f"{gather.fetches[0]}@reduced",)
