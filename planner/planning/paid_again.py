"""Bytes that a plan pays for again: readers that have the same brought to them, and ops that have it brought twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.algebra.delivery import made_tiling
from planner.algebra.tiling import Tiling
from planner.cost.tables import CostTables
from planner.graph.core.model import Graph
from planner.graph.step.deliveries import SharedDelivery
from planner.search.decision import Decision
from planner.tdl.bind import BoundOp

_LEAST_SHARED = 1e-4
"""Readers share a delivery only if that saves at least this share of the moved bytes."""


@dataclass(frozen=True, slots=True)
class Payer:
    """An op that has a tensor brought to it."""

    op: str
    need: Tiling | None
    """What its workers need; None if that is no tiling of the tensor, as a part with a halo is none."""
    regions: bytes
    """Equal for payers whose workers need equal regions."""
    moved_bytes: int
    """At all places where the op reads the tensor."""
    once_bytes: int
    """What one delivery of its need moves: less, where it reads the tensor at several places."""

    @property
    def pays_again(self) -> bool:
        """Whether it needs the same at several places, each with a delivery of its own."""
        return self.once_bytes < self.moved_bytes


@dataclass(frozen=True, slots=True)
class Saving:
    """A delivery that readers can share with everything else as it is."""

    delivery: SharedDelivery
    tiling: Tiling
    paid_bytes: tuple[int, ...]
    """By each of its readers, where it has its own, at all places where it reads the tensor."""
    once_bytes: int
    """What the delivery moves."""

    @property
    def saved_bytes(self) -> int:
        """The bytes that the readers pay less than each for itself."""
        return sum(self.paid_bytes) - self.once_bytes

    def among(self, first: int, end: int) -> Saving:
        """The same for some of its readers."""
        delivery = replace(self.delivery, readers=self.delivery.readers[first:end])
        return replace(self, delivery=delivery, paid_bytes=self.paid_bytes[first:end])


def paid_for_twice(decided: Decision, tables: CostTables) -> dict[str, list[Payer]]:
    """The ops that have a tensor brought to them, two or more, or one twice; by tensor, in the graph's order."""
    graph, plan = decided.graph, decided
    brought = Brought(decided, tables)
    payers_of = {}
    for name, moved in plan.tensor_bytes.items():
        consumers = graph.consumers[name]
        if moved and sum(op.inputs.count(name) for op in consumers) > 1:
            payers = [payer for op in consumers if (payer := _payer(brought, decided, op.name, name))]
            if len(payers) > 1 or any(payer.pays_again for payer in payers):
                payers_of[name] = payers
    return payers_of


def _payer(brought: Brought, decided: Decision, op: str, name: str) -> Payer | None:
    plan = decided
    reader, strategy = brought.ops[op], plan.strategies[op].tiling
    moved = brought.moved_bytes(op, name, plan.tilings[name], strategy)
    if not moved:
        return None
    reads, slots = reader.reads(reader.ranges(strategy)), list(slots_of(reader, name))
    regions = sorted({reads[slot].boxes.lo.tobytes() + reads[slot].boxes.hi.tobytes() for slot in slots})
    dims = reader.plain_read(slots[0]) if len(regions) == 1 else None
    need = None if dims is None else made_tiling(strategy, dims, (None,) * len(strategy.ways))
    return Payer(op, need, b"".join(regions), moved, moved // len(slots) if len(regions) == 1 else moved)


def savings(decided: Decision, paying: Mapping[str, Sequence[Payer]]) -> list[Saving]:
    """The savings that readers of the same regions can share, the tensors as they are held; nothing if all of it is
    hardly any.
    """
    names = Names(decided.graph)
    possible = [
        Saving(
            SharedDelivery(names.next(tensor), tensor, tuple(payer.op for payer in alike)),
            alike[0].need,
            tuple(payer.moved_bytes for payer in alike),
            alike[0].once_bytes,
        )
        for tensor, payers in paying.items()
        for alike in _alike(payers)
        if alike[0].need is not None
    ]
    least = _LEAST_SHARED * decided.moved_bytes
    return possible if sum(saving.saved_bytes for saving in possible) > least else []


def _alike(payers: Sequence[Payer]) -> Iterator[list[Payer]]:
    """The groups whose workers need equal regions: of two or more, or of one who pays again."""
    by_regions: dict[bytes, list[Payer]] = {}
    for payer in payers:
        by_regions.setdefault(payer.regions, []).append(payer)
    return (alike for alike in by_regions.values() if len(alike) > 1 or alike[0].pays_again)


class Brought:
    """The regions that move so that ops can read tensors."""

    def __init__(self, decided: Decision, tables: CostTables) -> None:
        self.ops = {op.op.name: op for op in decided.ops}
        self._graph, self._tables = decided.graph, tables
        self._known: dict[tuple[object, ...], int] = {}

    def moved_bytes(self, op: str, name: str, tiling: Tiling, strategy: Tiling) -> int:
        """What moves so that an op can read a tensor, at all places where it does.

        Args:
            op: the op's name.
            name: of a tensor that it reads.
            tiling: the tensor's.
            strategy: the op's.
        """
        reader, total = self.ops[op], 0
        for slot in slots_of(reader, name):
            key = (reader.content, slot, tiling, strategy)
            if key not in self._known:
                tensor = self._graph.tensors[name]
                table = self._tables.input_bytes(reader, slot, tensor, (tiling,), (strategy,))
                self._known[key] = int(table[0, 0])
            total += self._known[key]
        return total


def slots_of(op: BoundOp, name: str) -> Iterator[int]:
    """The slots at which an op has a tensor delivered."""
    delivered = op.delivered_slots.items()
    return (slot for slot, first in delivered if slot == first and op.op.inputs[slot] == name)


class Names:
    """Names for deliveries that no tensor and no op has."""

    def __init__(self, graph: Graph) -> None:
        self._taken = {*graph.tensors, *(op.name for op in graph.ops)}

    def next(self, tensor: str) -> str:
        """A name for one more delivery of a tensor."""
        name, number = f"{tensor}@shared", 1
        while name in self._taken:
            number += 1
            name = f"{tensor}@shared{number}"
        self._taken.add(name)
        return name
