"""The inside of repeated blocks of a forward pass: all that is made and read within one of them.

Where a block ends and the next one begins is not said by a model. The blocks of a run (``planner.search.repeats``) are
equal wherever they are taken to begin; they begin where the least lies at their borders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.graph.core.model import Graph
from planner.graph.rewriting.recomputation import Activations
from planner.search.repeats.runs import Run, Wiring
from planner.search.repeats.shortened import runs_of
from planner.tdl.bind import BoundOp


@dataclass(frozen=True, slots=True)
class _Activation:
    """An activation of a block."""

    name: str
    size_bytes: int
    block: int
    rank: int
    """Of the op that makes it, among those of a block."""
    readers: tuple[tuple[int, int] | None, ...]
    """Block and rank of each op of the forward pass that reads it; None of one that is in no block of the run."""

    def is_inside(self, begin: int) -> bool:
        """Whether it is read in its own block alone.

        Args:
            begin: the rank of the ops with which blocks begin; those below are of the block before.
        """
        block = self.block - (self.rank < begin)
        return all(reader is not None and reader[0] - (reader[1] < begin) == block for reader in self.readers)


def inside_blocks(activations: Activations, graph: Graph, ops: Sequence[BoundOp]) -> frozenset[str]:
    """The activations that are made in a block of a run of equal ones, and read in no other.

    Blocks are those of the forward pass alone: it repeats also where the backward pass does not, which sums the
    gradients of what all blocks read.

    Args:
        activations: of the model.
        graph: the model, ops with no other description than their bodies being replaced by these.
        ops: its ops with their descriptions.
    """
    forward = tuple(bound for bound in ops if bound.op.name not in activations.backward)
    wiring, runs = runs_of(replace(graph, ops=tuple(bound.op for bound in forward)), forward)
    inside: set[str] = set()
    for run in runs:
        values = _block_values(activations, wiring, run)
        begins = sorted({value.rank for value in values})
        if begins:
            begin = min(begins, key=lambda rank: sum(value.size_bytes for value in values if not value.is_inside(rank)))
            inside.update(value.name for value in values if value.is_inside(begin))
    return frozenset(inside)


def _block_values(activations: Activations, wiring: Wiring, run: Run) -> list[_Activation]:
    """The activations that blocks of a run make, with where they are read."""
    ranks = _ranks(wiring, run)
    place = {
        number: (start + at, ranks[chain])
        for chain, (members, start) in enumerate(zip(run.chains, run.starts, strict=True))
        for at, number in enumerate(members)
        if chain in ranks
    }
    values = []
    for name in activations.all:
        number = wiring.producer[name]
        if number in place:
            readers = tuple(place.get(reader) for reader, _ in wiring.readers.get(name, ()))
            values.append(_Activation(name, activations.graph.tensors[name].size_bytes, *place[number], readers))
    return values


def _ranks(wiring: Wiring, run: Run) -> dict[int, int]:
    """The place of each chain's op in a block: behind what the op reads, and shortly before what reads it.

    What turns a weight, say, reads nothing of its block; it belongs to the product that reads it.
    """
    block = (run.first + run.last) // 2
    members_of = zip(run.chains, run.starts, strict=True)
    chain_of = {members[block - start]: chain for chain, (members, start) in enumerate(members_of)}
    levels: dict[int, int] = {}
    for number in sorted((op for op in chain_of if op < wiring.ops), key=lambda op: -wiring.levels[op]):
        readers = {reader for name in wiring.outputs[number] for reader, _ in wiring.readers.get(name, ())}
        behind = [levels[reader] for reader in readers if reader in levels]
        levels[number] = min(behind) - 1 if behind else wiring.levels[number]
    ranks = {level: rank for rank, level in enumerate(sorted(set(levels.values())))}
    return {chain_of[number]: ranks[level] for number, level in levels.items()}
