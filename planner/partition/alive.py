"""Work whose results nobody reads is left out of a partitioned program.

A worker may make a part that nobody takes: of a Gather of one row, or where a replica lies nearer to every reader. What
was fetched for such work is fetched all the same, since the plan counts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from planner.partition.alike import Kinds
from planner.partition.local_work import LocalWork
from planner.partition.lowered import Epoch, Lowered

_NeededWork: TypeAlias = tuple[int, tuple[int, ...]]
"""The number of a work of an epoch, and those of its nodes that are needed; () for all of them."""


def without_dead_work(lowered: Lowered, kinds: Kinds) -> Lowered:
    """The program, with only what is needed: those local ops, and nodes of them, whose results reach a fetch or are
    collected, and the parts of constants that these read.

    Args:
        lowered: the program.
        kinds: of its workers.
    """
    needed_of = [
        _needed(lowered, worker, {*lowered.collected[worker]}.union(*reads))
        for worker, reads in zip(kinds.first, kinds.reads, strict=True)
    ]
    pruned_works: dict[tuple[int, tuple[int, ...]], LocalWork] = {}
    """By identity of a work, and the nodes that are left of it: workers that do the same share it."""

    def pruned(work: LocalWork, nodes: tuple[int, ...]) -> LocalWork:
        if not nodes:
            return work
        key = (id(work), nodes)
        if key not in pruned_works:
            pruned_works[key] = replace(work, nodes=tuple([work.nodes[number] for number in nodes]))
        return pruned_works[key]

    epochs = []
    for number, epoch in enumerate(lowered.epochs):
        needed = [every[number] for every in needed_of]
        works = [
            [pruned(mine[place], nodes) for place, nodes in needed[kind]]
            for kind, mine in zip(kinds.of, epoch.work, strict=True)
        ]
        epochs.append(Epoch(epoch.fetches, works))
    # Of the work that is left: a part of a constant that only dead work read is not needed.
    read = _constants_read(lowered, epochs)
    fixed = tuple(
        {name: value for name, value in values.items() if name in names}
        for values, names in zip(lowered.fixed, read, strict=True)
    )
    absent = tuple(
        tuple(name for name in labels if name in names) for labels, names in zip(lowered.absent, read, strict=True)
    )
    return replace(lowered, epochs=tuple(epochs), fixed=fixed, absent=absent)


def _needed(lowered: Lowered, worker: int, needed: set[str]) -> list[list[_NeededWork]]:
    """A worker's work that is needed, by epoch.

    Args:
        lowered: the program.
        worker: whose.
        needed: what fetches read and what is collected; it grows.
    """
    epochs: list[list[_NeededWork]] = []
    for epoch in reversed(lowered.epochs):
        needed_works: list[_NeededWork] = []
        works = epoch.work[worker]
        for place in range(len(works) - 1, -1, -1):
            work = works[place]
            if needed.isdisjoint(work.makes):
                continue
            if len(work.nodes) == 1:
                needed.update(work.reads)
                needed_works.append((place, ()))
                continue
            nodes = []
            for number in range(len(work.nodes) - 1, -1, -1):
                node = work.nodes[number]
                if not needed.isdisjoint(node.outputs):
                    needed.update(node.inputs)
                    needed.discard("")  # an absent output is nothing that somebody wants
                    nodes.append(number)
            needed_works.append((place, tuple(nodes[::-1]) if len(nodes) < len(work.nodes) else ()))
        epochs.append(needed_works[::-1])
    return epochs[::-1]


def _constants_read(lowered: Lowered, epochs: Sequence[Epoch]) -> list[set[str]]:
    """The parts of constants that each worker's work reads."""
    constants = lowered.constants
    different = {id(work): work for epoch in epochs for works in epoch.work for work in works}
    reads = {number: constants.intersection(work.reads) for number, work in different.items()}
    reading = {number: names for number, names in reads.items() if names}
    parts_read: list[set[str]] = [set() for _ in lowered.buffers]
    for epoch in epochs:
        for read, works in zip(parts_read, epoch.work, strict=True):
            for names in [reading[id(work)] for work in works if id(work) in reading]:
                read.update(names)
    return parts_read
