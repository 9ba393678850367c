"""Work whose results nobody reads is left out of a partitioned program.

A worker may make a part that nobody takes: of a Gather of one row, or where a replica lies nearer to every reader. What
was fetched for such work is fetched all the same, since the plan counts it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from planner.artifacts.program import Source
from planner.partition.local_work import LocalWork
from planner.partition.lower import Epoch, Lowered


def without_dead_work(lowered: Lowered) -> Lowered:
    """The program, with only what is needed: those local ops, and nodes of them, whose results reach a fetch or are
    collected, and the parts of constants that these read.
    """
    wanted = [{*names} for names in lowered.collected]
    for _, source in sources_read(lowered.epochs):
        wanted[source.worker].add(source.buffer)
    kept = [_kept(lowered, worker, needed) for worker, needed in enumerate(wanted)]
    by_epoch = zip(*kept, strict=True)
    epochs = tuple(Epoch(epoch.fetches, [*work]) for epoch, work in zip(lowered.epochs, by_epoch, strict=True))
    fixed = tuple(
        {name: value for name, value in values.items() if name in needed}
        for values, needed in zip(lowered.fixed, wanted, strict=True)
    )
    absent = tuple(
        tuple(name for name in names if name in needed) for names, needed in zip(lowered.absent, wanted, strict=True)
    )
    return replace(lowered, epochs=epochs, fixed=fixed, absent=absent)


def sources_read(epochs: Sequence[Epoch]) -> Iterator[tuple[int, Source]]:
    """Every buffer that a fetch on any worker reads, with the number of its epoch."""
    for number, epoch in enumerate(epochs):
        for fetches in epoch.fetches:
            for fetch in fetches:
                for piece in fetch.pieces:
                    for source in piece.sources:
                        yield number, source


def _kept(lowered: Lowered, worker: int, needed: set[str]) -> list[list[LocalWork]]:
    """A worker's work by epoch; ``needed``, which grows, is what fetches read and what is collected."""
    kept: list[list[LocalWork]] = []
    for epoch in reversed(lowered.epochs):
        works: list[LocalWork] = []
        for work in reversed(epoch.work[worker]):
            nodes = []
            for node in reversed(work.nodes):
                if not needed.isdisjoint(node.outputs):
                    needed.update(node.inputs)
                    needed.discard("")  # an absent output is nothing that somebody wants
                    nodes.append(node)
            if nodes:  # an op of which nobody has a part has no nodes at all
                works.append(work if len(nodes) == len(work.nodes) else replace(work, nodes=tuple(reversed(nodes))))
        kept.append(works[::-1])
    return kept[::-1]
