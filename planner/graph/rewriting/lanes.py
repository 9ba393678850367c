"""Equal ops beside each other: lanes of a graph that compute the same of different tensors, and not of each other.

Experts, heads that are written apart, towers, an optimizer that multiplies matrices (Muon): a loop has written the same
ops once for each. A lane is what one pass of the loop wrote, as far as it hangs together; op k of every lane has the
same type, attributes and shapes. What lanes read is shared by all of them, or each one's own; what is each one's own
and made by no op of the lanes is an operand of theirs.

Lanes grow from equal products: in lockstep to what reads their results, and to what makes what they alone read. No op
of a lane depends on the same op of another one: workers may have some lanes each, whole, and work at the same time.
A graph whose ops are marked as lanes' (``Graph.lanes``) offers that to the search.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Final, TypeAlias

import numpy as np

from planner.algebra.lane import Lane
from planner.graph.core.model import Graph, Op
from planner.graph.rewriting.products import product_of

Beside: TypeAlias = tuple[str, ...]
"""Tensors that lie beside each other: one of each lane, in the lanes' order."""

LEAST_PRODUCTS: Final = 2
"""Products of a lane, at least: what is brought to one worker for a single one is brought to all for as much."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """Equal ops beside each other."""

    ops: tuple[tuple[Op, ...], ...]
    """By place in a lane the ops of all lanes, in the lanes' order; of the first lane in execution order."""
    operands: tuple[Beside, ...]
    """What each lane has of its own that no op of the lanes makes, once each."""

    @property
    def name(self) -> str:
        """The name of the first lane's first op: no other lanes of the graph have that."""
        return self.ops[0][0].name

    @property
    def count(self) -> int:
        """The number of lanes."""
        return len(self.ops[0])


def lanes_of(graph: Graph) -> tuple[Lanes, ...]:
    """All equal ops beside each other that hang together by two products or more; no op is in two of them.

    Args:
        graph: in its canonical form.
    """
    finder = _Finder(graph)
    groups = []
    for seed in finder.seeds():
        lanes = finder.grown(seed)
        if lanes is not None:
            groups.append(lanes)
    return tuple(groups)


class _Finder:
    """Finds lanes in a graph, those of earlier ops first."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._members: set[str] = set()
        """Names of ops that are in lanes."""
        self._place = {op.name: number for number, op in enumerate(graph.ops)}
        self._outputs = frozenset(graph.outputs)

    def seeds(self) -> Iterator[tuple[Op, ...]]:
        """Equal products of which none depends on another, in execution order.

        Of equal products on a path, each is at another depth: how many equal ones are before it.
        """
        groups: dict[object, list[Op]] = defaultdict(list)
        kinds = {op.name: self._kind(op) for op in self._graph.ops if self._is_product(op)}
        several = {kind for kind, count in Counter(kinds.values()).items() if count > 1}
        depths = self._depths({name: kind for name, kind in kinds.items() if kind in several})
        for op in self._graph.ops:
            kind = kinds.get(op.name)
            if kind in several:
                groups[kind, depths[op.name]].append(op)
        for group in sorted(groups.values(), key=lambda ops: self._place[ops[0].name]):
            if len(group) > 1 and not any(op.name in self._members for op in group):
                yield tuple(group)

    def _depths(self, kinds: Mapping[str, object]) -> dict[str, int]:
        """By op how many of its kind are before it at most on a path.

        Args:
            kinds: by op, of those that are looked at.
        """
        number = {kind: at for at, kind in enumerate(dict.fromkeys(kinds.values()))}
        zeros = np.zeros(len(number), np.int32)
        # Of all kinds at once: a walk for each would take seconds of a graph of 27,000 ops.
        before: dict[str, np.ndarray] = {}
        depths = {}
        for op in self._graph.ops:
            read = [before[name] for name in op.inputs if name in before]
            depth = np.maximum.reduce(read) if len(read) > 1 else read[0] if read else zeros
            if op.name in kinds:
                at = number[kinds[op.name]]
                depths[op.name] = int(depth[at])
                depth = depth.copy()
                depth[at] += 1
            before.update((name, depth) for name in op.outputs if name)
        return depths

    def _is_product(self, op: Op) -> bool:
        return product_of(op, self._graph.tensors) is not None

    def _kind(self, op: Op) -> object:
        """Equal for ops that may stand at one place of lanes: what they are, and who reads them at which operand."""
        return self._form(op), tuple(
            sorted(
                (reader.op_type, slot)
                for name in op.outputs
                for reader in (self._graph.consumers[name] if name else ())
                for slot, read in enumerate(reader.inputs)
                if read == name
            )
        )

    def _form(self, op: Op) -> object:
        tensors = self._graph.tensors
        types = [(tensors[name].shape, tensors[name].dtype) if name else None for name in (*op.inputs, "", *op.outputs)]
        return op.op_type, op.domain, op.attributes, tuple(types)

    def grown(self, seed: tuple[Op, ...]) -> Lanes | None:
        """The lanes that hang together with some equal products; None where they are too little."""
        growth = _Growth(self._graph, len(seed))
        if not self._join(growth, seed):
            return None
        waiting = [*growth.latest]
        while waiting:
            beside = waiting.pop(0)
            growth.latest.clear()
            for ops in (*self._read_by(growth, beside), *self._made_by(growth, beside)):
                self._join(growth, ops)
            waiting.extend(growth.latest)
        lanes = growth.trimmed(self._place)
        if sum(self._is_product(ops[0]) for ops in lanes.ops) < LEAST_PRODUCTS or not self._stand_apart(lanes):
            return None
        self._members.update(op.name for ops in lanes.ops for op in ops)
        return lanes

    def _read_by(self, growth: _Growth, beside: Beside) -> Iterator[tuple[Op, ...]]:
        """Ops that may be at one place, of those that read tensors beside each other."""
        readers: list[dict[object, list[Op]]] = []
        for name in beside:
            by_kind: dict[object, list[Op]] = defaultdict(list)
            for op in self._graph.consumers[name]:
                if op.name not in growth.members:
                    by_kind[self._form(op), op.inputs.index(name)].append(op)
            readers.append(by_kind)
        for kind, first in readers[0].items():
            matches = [by_kind.get(kind, []) for by_kind in readers]
            if all(len(ops) == len(first) for ops in matches):
                yield from zip(*matches, strict=True)

    def _made_by(self, growth: _Growth, beside: Beside) -> Iterator[tuple[Op, ...]]:
        """The ops that make tensors beside each other, where nobody else reads these."""
        makers = [self._graph.producer.get(name) for name in beside]
        ops = tuple(op for op in makers if op is not None and op.name not in growth.members)
        if len(ops) < len(beside) or not self._outputs.isdisjoint(beside):
            return
        is_private = all(reader.name in growth.members for name in beside for reader in self._graph.consumers[name])
        if is_private and len({self._form(op) for op in ops}) == 1:
            yield ops

    def _join(self, growth: _Growth, ops: tuple[Op, ...]) -> bool:
        """Takes ops into the lanes, if they can be at one place of them."""
        if len({op.name for op in ops}) < len(ops):
            return False
        if any(op.name in growth.members or op.name in self._members for op in ops):
            return False
        operands = growth.operands_of(ops)
        if operands is None:
            return False
        growth.join(ops, operands)
        return True

    def _stand_apart(self, lanes: Lanes) -> bool:
        """Whether all lanes can do an op before any does the next: then no op depends on its like in another lane."""
        results = {name for ops in lanes.ops for op in ops for name in op.outputs if name}
        if any(name in results for beside in lanes.operands for name in beside):
            return False  # one lane makes what another one has of its own, as layer after layer does
        place: dict[str, object] = {op.name: number for number, ops in enumerate(lanes.ops) for op in ops}
        numbers = [self._place[name] for name in place]
        waits: dict[object, set[object]] = {}
        maker: dict[str, object] = {}
        for op in self._graph.ops[min(numbers) : max(numbers) + 1]:
            node = place.get(op.name, op.name)
            waits.setdefault(node, set()).update(maker[name] for name in op.inputs if name in maker)
            maker.update((name, node) for name in op.outputs if name)
            if node in waits[node]:
                return False
        try:
            TopologicalSorter(waits).prepare()
        except CycleError:
            return False
        return True


class _Growth:
    """Lanes that are growing.

    Attributes:
        ops: by place, in the order in which they joined.
        members: names of all ops.
        latest: tensors beside each other that came with the last ops.
    """

    def __init__(self, graph: Graph, count: int) -> None:
        self._graph, self._count = graph, count
        self.ops: list[tuple[Op, ...]] = []
        self.members: set[str] = set()
        self.latest: list[Beside] = []
        self._lane: dict[str, int] = {}
        """By tensor that is one of several beside each other, which lane's it is."""
        self._beside: dict[str, Beside] = {}
        """By such a tensor, all of them."""
        self._shared: set[str] = set()
        """Tensors that all lanes read."""

    def operands_of(self, ops: tuple[Op, ...]) -> list[Beside] | None:
        """The tensors that the lanes read at each slot; None where it does not lie beside each other.

        Constants, which all workers have, are no lane's own.
        """
        operands: list[Beside] = []
        for names in zip(*(op.inputs for op in ops), strict=True):
            if len(set(names)) == 1 or all(name in self._graph.constants for name in names):
                operands.append((names[0],) * self._count)
            elif self._beside.get(names[0], names) == names and len(set(names)) == len(names) and all(names):
                if any(self._lane.get(name, lane) != lane for lane, name in enumerate(names)):
                    return None
                operands.append(names)
            else:
                return None
        lane_operands = {beside for beside in operands if len(set(beside)) > 1}
        if len({name for beside in lane_operands for name in beside}) < len(lane_operands) * self._count:
            return None  # a tensor would be of two lanes, or of one lane at two places
        shared = {beside[0] for beside in operands if beside not in lane_operands}
        fresh = {name for beside in lane_operands for name in beside} | {name for op in ops for name in op.outputs}
        # Each is looked up in what there is: of what there is, none is shared and one lane's own.
        if (
            not fresh.isdisjoint(shared)
            or not fresh.isdisjoint(self._shared)
            or any(name in self._lane for name in shared)
        ):
            return None  # what all lanes read would be one lane's
        if not lane_operands:
            return None
        return operands

    def join(self, ops: tuple[Op, ...], operands: Sequence[Beside]) -> None:
        """Takes ops, what they read and what they make into the lanes."""
        self.ops.append(ops)
        self.members.update(op.name for op in ops)
        self._shared.update(beside[0] for beside in operands if len(set(beside)) == 1)
        results = [names for names in zip(*(op.outputs for op in ops), strict=True) if names[0]]
        for beside in (*operands, *results):
            if len(set(beside)) > 1 and beside[0] not in self._beside:
                self._beside.update(dict.fromkeys(beside, beside))
                self._lane.update((name, lane) for lane, name in enumerate(beside))
                self.latest.append(beside)

    def trimmed(self, place: Mapping[str, int]) -> Lanes:
        """The lanes without ops that hang on an operand alone: what they read would be brought together for nothing."""
        ops = list(self.ops)
        while True:
            results = {name for row in ops for name in row[0].outputs}
            read = {name for row in ops for name in row[0].inputs}
            idle = [
                row
                for row in ops
                if product_of(row[0], self._graph.tensors) is None
                and read.isdisjoint(row[0].outputs)
                and results.isdisjoint(row[0].inputs)
            ]
            if not idle:
                break
            ops = [row for row in ops if row not in idle]
        ops.sort(key=lambda row: place[row[0].name])
        operands = dict.fromkeys(
            self._beside[name] for row in ops for name in row[0].inputs if name in self._beside and name not in results
        )
        return Lanes(tuple(ops), tuple(operands))


def marked(graph: Graph, chosen: Iterable[Lanes]) -> Graph:
    """The graph with equal ops beside each other marked, so that workers may have some of them whole.

    Args:
        graph: is left as it is.
        chosen: lanes of the graph (``lanes_of``).
    """
    return replace(
        graph,
        lanes={
            op.name: Lane(number, lanes.count, ops[0].name, lanes.name)
            for lanes in chosen
            for ops in lanes.ops
            for number, op in enumerate(ops)
        },
    )
