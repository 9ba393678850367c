"""Work whose results nobody reads is left out of a partitioned program.

A worker may make a part that nobody takes: of a Gather of one row, or where a replica lies nearer to every reader. What
was fetched for such work is fetched all the same, since the plan counts it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from planner.partition.local_work import LocalWork
from planner.partition.lower import Epoch, Lowered


def without_dead_work(lowered: Lowered) -> Lowered:
    """The program, with only what is needed: those local ops, and nodes of them, whose results reach a fetch or are
    collected, and the parts of constants that these read.
    """
    wanted = [{*names} for names in lowered.collected]
    for names in sources_read(lowered.epochs):
        for worker, needed in enumerate(wanted):
            needed.update(names[worker])
    known: dict[tuple[int, ...], LocalWork] = {}
    kept = [_kept(lowered, worker, needed, known) for worker, needed in enumerate(wanted)]
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


def sources_read(epochs: Sequence[Epoch]) -> Iterator[tuple[set[str], ...]]:
    """For every epoch, by worker, the buffers that fetches on any worker read."""
    for epoch in epochs:
        found: tuple[set[str], ...] = tuple(set() for _ in epoch.fetches)
        # Workers of a round share its pieces, and pieces their sources.
        pieces = {id(piece): piece for fetches in epoch.fetches for fetch in fetches for piece in fetch.pieces}
        for source in {id(source): source for piece in pieces.values() for source in piece.sources}.values():
            found[source.worker].add(source.buffer)
        yield found


def _kept(
    lowered: Lowered, worker: int, needed: set[str], known: dict[tuple[int, ...], LocalWork]
) -> list[list[LocalWork]]:
    """A worker's work by epoch.

    Args:
        lowered: the program.
        worker: whose.
        needed: what fetches read and what is collected; it grows.
        known: work that is left of other, which workers share.
    """
    kept: list[list[LocalWork]] = []
    for epoch in reversed(lowered.epochs):
        works: list[LocalWork] = []
        for work in reversed(epoch.work[worker]):
            if needed.isdisjoint(work.makes):
                continue
            if len(work.nodes) == 1:
                needed.update(work.reads)
                works.append(work)
                continue
            nodes = []
            for node in reversed(work.nodes):
                if not needed.isdisjoint(node.outputs):
                    needed.update(node.inputs)
                    needed.discard("")  # an absent output is nothing that somebody wants
                    nodes.append(node)
            if len(nodes) < len(work.nodes):
                left = tuple(reversed(nodes))
                work = known.setdefault((id(work), *map(id, left)), replace(work, nodes=left))
            works.append(work)
        kept.append(works[::-1])
    return kept[::-1]
