"""Workers that do the same, but for where their parts lie and from whom they take them.

Most plans have few kinds of workers: on 64 of them the same ops run in the same order on parts of the same shapes.
What follows from the order of the work and from sizes alone (what is dead, which ops make a segment, what segments hand
out) is the same for all workers of a kind, and found once for each. Names of parts of constants are left out of the
comparison: they differ from worker to worker (``range[0:8]``, ``range[8:16]``), and nothing else depends on them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from planner.counted import counted
from planner.graph.compare.repeats import numbered
from planner.graph.core.model import Graph
from planner.partition.local_work import LocalWork
from planner.partition.lowered import Lowered, sources_read


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds of a program's workers."""

    of: tuple[int, ...]
    """By worker: the number of its kind."""
    reads: tuple[tuple[frozenset[str], ...], ...]
    """By kind, and by epoch: the buffers that fetches on any worker read."""
    is_over: tuple[tuple[bool, ...], ...]
    """By kind, and by state pair: whether a worker has the same part of the state and of the next state."""

    @property
    def first(self) -> tuple[int, ...]:
        """The first worker of each kind."""
        return tuple(self.of.index(kind) for kind in range(len(self.reads)))


def kinds_of(graph: Graph, lowered: Lowered) -> Kinds:
    """The kinds of workers.

    Workers of one kind have works of equal form in each epoch, fill buffers of equal names and shapes by fetches in
    equal order, collect the same, have the same taken from them, and differ in parts of constants at most.

    Args:
        graph: that was planned.
        lowered: its program, op by op.
    """
    every = range(len(lowered.buffers))
    forms = _Forms(lowered)
    signatures: list[list[int]] = [[] for _ in every]
    for epoch in counted(lowered.epochs, "making programs: comparing epoch", len(every)):
        targets = numbered(tuple([fetch.target for fetch in epoch.fetches[worker]]) for worker in every)
        works = numbered(forms.of(epoch.work[worker]) for worker in every)
        for worker in every:
            signatures[worker] += [targets[worker], works[worker]]
    reads: list[list[frozenset[str]]] = [[] for _ in every]
    for read in sources_read(lowered.epochs):
        for worker in every:
            reads[worker].append(frozenset(read[worker]))
    is_over = []
    alike: list[Hashable] = []
    for worker, buffers in enumerate(lowered.buffers):
        names = tuple(["" if name in forms.constants else name for name in buffers])
        pairs = [(buffers.region(pair.current), buffers.region(pair.following)) for pair in graph.state]
        is_over.append(tuple([current is not None and current == following for current, following in pairs]))
        parts = (names, buffers.shapes, tuple(reads[worker]), lowered.collected[worker], is_over[worker])
        alike.append((tuple(signatures[worker]), *parts))
    of = numbered(alike)
    first = [of.index(kind) for kind in range(max(of) + 1)]
    return Kinds(tuple(of), tuple(tuple(reads[worker]) for worker in first), tuple(is_over[worker] for worker in first))


class _Forms:
    """The work of workers, but for parts of constants."""

    def __init__(self, lowered: Lowered) -> None:
        self.constants = lowered.constants
        self._numbers: dict[Hashable, int] = {}
        self._of_work: dict[int, int] = {}
        """By identity: workers that do the same share one object that says so."""
        self._of_works: dict[tuple[int, ...], tuple[int, ...]] = {}

    def of(self, works: Sequence[LocalWork]) -> tuple[int, ...]:
        """Equal for works of equal form."""
        alike = tuple(map(id, works))
        if alike not in self._of_works:
            self._of_works[alike] = tuple([self._form(work) for work in works])
        return self._of_works[alike]

    def _form(self, work: LocalWork) -> int:
        if id(work) not in self._of_work:
            nodes = []
            for node in work.nodes:
                reads = [name for name in node.inputs if name not in self.constants and name not in work.constants]
                nodes.append((tuple(reads), node.outputs, node.op_type))
            self._of_work[id(work)] = self._numbers.setdefault((work.op, tuple(nodes)), len(self._numbers))
        return self._of_work[id(work)]
