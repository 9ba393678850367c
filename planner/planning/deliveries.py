"""Shared deliveries as a choice of the search: what several readers have brought to them is brought once.

A plan is found first in which every reader has its own delivery. Where it pays for a tensor more than once, two things
are tried:

1. *As it is*: readers that need the same, worker by worker, share one delivery of just that, and everything else stays.
   It saves what all of them pay but for one delivery, and takes no search.
2. *Searched*: all that pay are offered a delivery in common, and those of them that need the same one of their own
   behind it, and the graph is planned again. A delivery is a tensor of that graph, with a tiling of its own that may
   be its source's; so plans without sharing, and those of the first way, are among those that are searched. In an
   unrolled network all readers of every tensor are offered one, too, and those that read it by the same index map their
   own; in any other with much effort.

The plan of the least cost is taken, the one with less sharing of equal ones. A delivery stays only if it saves
bytes, for it holds memory from its first reader to its last. The bound of a plan that was searched is that of its
search: these readers may share deliveries, and each of all others has its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from planner.algebra.delivery import made_tiling
from planner.algebra.tiling import Tiling
from planner.artifacts.plan import OpStrategy
from planner.cost.tables import CostTables
from planner.errors import InfeasibleError
from planner.graph.deliveries import SharedDelivery, with_deliveries
from planner.graph.model import Graph
from planner.planning.bodies import counted_again
from planner.search.decide import decide
from planner.search.decided import Decided
from planner.search.repeats.unrolled import find_copies
from planner.search.request import SearchRequest
from planner.search.schedule import Schedule, schedule_of
from planner.stop import StoppedError
from planner.tdl.bind import BoundOp
from planner.tdl.descriptions import Descriptions

Sharing: TypeAlias = Literal["none", "auto"]
"""Whether readers may share deliveries: never, or where that saves bytes."""

_LEAST_SHARED = 1e-4
"""Readers share a delivery only if that saves at least this share of the moved bytes."""

_SHARED = "a search with deliveries that readers share"


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


@dataclass(frozen=True, slots=True)
class Saving:
    """A delivery that readers can share with everything else as it is."""

    delivery: SharedDelivery
    tiling: Tiling
    saved_bytes: int


def shared(decided: Decided, descriptions: Descriptions, ask: SearchRequest) -> Decided:
    """The plan, or a better one in which deliveries are shared.

    Args:
        decided: a plan in which every reader has its own delivery.
        descriptions: of the model's operators.
        ask: what the plan was asked for. With ``quick`` effort nothing is searched; with ``normal``, if enough is paid
            for again or the network is unrolled; with ``thorough`` always. Its rules say which tensors their
            patterns may match: no delivery.
    """
    tables = ask.tables
    again = replace(ask, incumbent=decided, is_needed=False)
    paying = paid_for_twice(decided, tables)
    best = with_savings(decided, savings(decided, paying), descriptions, tables)
    seconds, bounding, entries = decided.search_seconds, decided.bound_seconds, decided.eliminated_entries
    for deliveries in _worth_searching(decided, paying, schedule_of(ask.effort)):
        if ask.stop.leaves_out(_SHARED):
            break
        graph = with_deliveries(decided.graph, deliveries)
        ops = _bound(graph, decided.ops, descriptions)
        with contextlib.suppress(InfeasibleError):  # too entangled with deliveries: what is known stays
            ask.progress("planning again: with deliveries that readers share", cost=best.cost)
            try:
                found = decide(graph, ops, again)
            except StoppedError:
                ask.stop.leaves_out(_SHARED)
                break
            best = _better(best, _without_idle(decided, found, deliveries, descriptions, tables), found)
            seconds, bounding = seconds + found.search_seconds, bounding + found.bound_seconds
            entries += found.eliminated_entries
    return replace(best, search_seconds=seconds, bound_seconds=bounding, eliminated_entries=entries)


def _worth_searching(
    decided: Decided, paying: Mapping[str, Sequence[Payer]], schedule: Schedule
) -> Iterator[list[SharedDelivery]]:
    """Deliveries to be offered: to those that pay for a tensor again, if that is enough; or to all readers."""
    graph, moved = decided.graph, decided.moved_bytes
    again = sum(payer.moved_bytes for payers in paying.values() for payer in payers)
    again -= sum(max(payer.moved_bytes for payer in payers) for payers in paying.values())
    least = schedule.least_paid_again
    is_enough = least is not None and again > least * moved
    # Equal time steps hold their tensors alike, also the last one's, which fewer need: a delivery is for its readers.
    is_unrolled = schedule.offers_all_copies and bool(find_copies(graph, decided.ops).tensors)
    to_all = moved and (schedule.offers_all or is_unrolled)
    if is_enough:
        yield offers(graph, {name: [(payer.op, payer.regions) for payer in payers] for name, payers in paying.items()})
    everything = dict(_all_readers(decided)) if to_all else {}
    if everything:
        yield offers(graph, everything)


def _all_readers(decided: Decided) -> Iterator[tuple[str, list[tuple[str, Hashable]]]]:
    """By tensor that several ops read these, and what is equal for ops that read it by the same index map."""
    graph = decided.graph
    bound = {one.op.name: one for one in decided.ops}
    for name in decided.tilings:
        found: list[tuple[str, Hashable]] = []
        for op in graph.consumers[name]:
            slots = tuple(_slots(bound[op.name], name))
            if slots:
                found.append((op.name, (bound[op.name].content, slots)))
        if len(found) > 1 and graph.tensors[name].elements > 1:
            yield name, found


def paid_for_twice(decided: Decided, tables: CostTables) -> dict[str, list[Payer]]:
    """By tensor, in the graph's order, the ops that have it brought to them, where these are two or more."""
    graph, plan = decided.graph, decided
    brought = Brought(decided, tables)
    found = {}
    for name, moved in plan.tensor_bytes.items():
        if moved and len(graph.consumers[name]) > 1:
            payers = [payer for op in graph.consumers[name] if (payer := _payer(brought, decided, op.name, name))]
            if len(payers) > 1:
                found[name] = payers
    return found


def _payer(brought: Brought, decided: Decided, op: str, name: str) -> Payer | None:
    plan = decided
    bound, strategy = brought.ops[op], plan.strategies[op].tiling
    moved = brought.moved_bytes(op, name, plan.tilings[name], strategy)
    if not moved:
        return None
    reads, slots = bound.reads(bound.ranges(strategy)), list(_slots(bound, name))
    regions = sorted({reads[slot].boxes.lo.tobytes() + reads[slot].boxes.hi.tobytes() for slot in slots})
    dims = bound.plain_read(slots[0]) if len(regions) == 1 else None
    need = None if dims is None else made_tiling(strategy, dims, (None,) * len(strategy.ways))
    return Payer(op, need, b"".join(regions), moved, moved // len(slots) if len(regions) == 1 else moved)


def savings(decided: Decided, paying: Mapping[str, Sequence[Payer]]) -> list[Saving]:
    """What readers that need the same can share, the tensors as they are held; nothing if all of it is hardly any."""
    names = _Names(decided.graph)
    found = [
        Saving(
            SharedDelivery(names.next(tensor), tensor, tuple(payer.op for payer in alike)),
            alike[0].need,
            sum(payer.moved_bytes for payer in alike) - alike[0].once_bytes,
        )
        for tensor, payers in paying.items()
        for alike in _alike(payers)
        if alike[0].need is not None
    ]
    least = _LEAST_SHARED * decided.moved_bytes
    return found if sum(saving.saved_bytes for saving in found) > least else []


def offers(graph: Graph, readers: Mapping[str, Sequence[tuple[str, Hashable]]]) -> list[SharedDelivery]:
    """For each tensor a delivery to all of its readers, and behind it one to those that are alike.

    Args:
        graph: without deliveries.
        readers: by tensor ops, and what is equal for those that may want one of their own.
    """
    names = _Names(graph)
    found: list[SharedDelivery] = []
    for tensor, ops in readers.items():
        common = names.next(tensor)
        groups: dict[Hashable, list[str]] = {}
        for op, kind in ops:
            groups.setdefault(kind, []).append(op)
        several = [group for group in groups.values() if 1 < len(group) < len(ops)]
        own = [SharedDelivery(names.next(tensor), common, tuple(group)) for group in several]
        grouped = {op for group in several for op in group}
        rest = (op for op, _ in ops if op not in grouped)
        found += [SharedDelivery(common, tensor, (*rest, *(one.name for one in own))), *own]
    return found


def _alike(payers: Sequence[Payer]) -> Iterator[list[Payer]]:
    """The groups of two or more whose workers need equal regions."""
    by_regions: dict[bytes, list[Payer]] = {}
    for payer in payers:
        by_regions.setdefault(payer.regions, []).append(payer)
    return (alike for alike in by_regions.values() if len(alike) > 1)


def with_savings(decided: Decided, chosen: Sequence[Saving], descriptions: Descriptions, tables: CostTables) -> Decided:
    """The plan with these deliveries shared, under names of its own, and everything else as it is; without a bound."""
    if not chosen:
        return decided
    names = _Names(decided.graph)
    deliveries = [replace(saving.delivery, name=names.next(saving.delivery.tensor)) for saving in chosen]
    tilings = {delivery.name: saving.tiling for delivery, saving in zip(deliveries, chosen, strict=True)}
    found = _with(decided, decided, deliveries, tilings, descriptions, tables)
    saved = decided.moved_bytes - found.moved_bytes
    assert saved == sum(saving.saved_bytes for saving in chosen), (
        "sharing saves what all readers pay, but for one delivery"
    )
    return replace(found, certified_gap=None)


def _without_idle(
    decided: Decided,
    searched: Decided,
    deliveries: Sequence[SharedDelivery],
    descriptions: Descriptions,
    tables: CostTables,
) -> Decided:
    """The searched plan less the shared deliveries that save no bytes, and less the readers for whom they save none."""
    plan = searched
    brought = Brought(searched, tables)
    strategies = {name: strategy.tiling for name, strategy in plan.strategies.items()}
    # Delivering in one tiling and holding in another moves no less than delivering in the other.
    strategies.update({one.name: plan.tilings[one.name] for one in deliveries})
    kept = {one.name: _Kept(one.tensor, dict.fromkeys(one.readers, one.name)) for one in deliveries}

    def moved(reader: str, reads: str, held_as: str) -> int:
        return brought.moved_bytes(reader, reads, plan.tilings[held_as], strategies[reader])

    source = {one.name: one.tensor for one in deliveries}
    is_settled = False
    while not is_settled:
        is_settled = True
        for name in reversed(list(kept)):
            one = kept[name]
            direct = {reader: moved(reader, reads, one.tensor) for reader, reads in one.readers.items()}
            through = {reader: moved(reader, reads, name) for reader, reads in one.readers.items()}
            leaving = [reader for reader in direct if direct[reader] <= through[reader]]
            staying = [reader for reader in direct if reader not in leaving]
            saved = sum(direct[reader] - through[reader] for reader in staying)
            if saved <= moved(name, source[name], one.tensor):
                leaving, staying = list(direct), []
            if leaving:
                is_settled = False
                for reader in leaving:
                    reads = one.readers.pop(reader)
                    if reader in kept:
                        kept[reader].tensor = one.tensor
                    if one.tensor in kept:
                        kept[one.tensor].readers[reader] = reads
            if not staying:
                del kept[name]
                if one.tensor in kept:
                    del kept[one.tensor].readers[name]
    place = {op.name: number for number, op in enumerate(searched.graph.ops)}
    found = [
        SharedDelivery(name, one.tensor, tuple(sorted(one.readers, key=place.__getitem__)))
        for name, one in kept.items()
    ]
    tilings = {name: plan.tilings[name] for name in kept}
    return _with(decided, searched, found, tilings, descriptions, tables)


@dataclass
class _Kept:
    """A delivery as it becomes."""

    tensor: str
    readers: dict[str, str] = field(default_factory=dict)
    """And the tensor that each of them reads in the graph that was searched."""


def _better(best: Decided, found: Decided, searched: Decided) -> Decided:
    """What was found if it costs less; else the best one known.

    Args:
        best: that is known.
        found: of a search, with those deliveries alone that save bytes.
        searched: the same with all deliveries, and with the bound of the search.
    """
    if found.cost < best.cost:
        return replace(found, certified_gap=_gap(found.cost, searched))
    if best.deliveries and best.certified_gap is None:
        return replace(best, certified_gap=_gap(best.cost, searched))
    return best


def _gap(cost: int, searched: Decided) -> float | None:
    """How far a plan is above the bound of a search; None if it is below, and so none of those that were searched."""
    if searched.certified_gap is None:
        return None
    lower = searched.cost / (1 + searched.certified_gap)
    if round(lower) > cost:
        return None
    return max(0.0, cost / lower - 1) if lower else 0.0


def _with(
    decided: Decided,
    like: Decided,
    deliveries: Sequence[SharedDelivery],
    tilings: Mapping[str, Tiling],
    descriptions: Descriptions,
    tables: CostTables,
) -> Decided:
    """A plan with these deliveries, and no others.

    Args:
        decided: the graph without deliveries, and its ops.
        like: what all else is as in; it may have more deliveries.
        deliveries: are shared.
        tilings: theirs.
        descriptions: of the model's operators.
        tables: of bytes.
    """
    graph = with_deliveries(decided.graph, deliveries)
    ops = _bound(graph, decided.ops, descriptions)
    strategies = {op.name: like.strategies[op.name] for op in decided.graph.ops}
    for bound in ops:
        if bound.op.name in tilings:
            names = tuple(variable.name for variable in bound.variables)
            strategies[bound.op.name] = OpStrategy(tilings[bound.op.name], names)
    tilings = {**like.tilings, **tilings}
    found = replace(like, graph=graph, ops=ops, tilings=tilings, deliveries=tuple(deliveries))
    return counted_again(found, strategies, set(like.unsplit), tables)


def _bound(graph: Graph, known: Sequence[BoundOp], descriptions: Descriptions) -> tuple[BoundOp, ...]:
    """The graph's ops with their descriptions; those that are as they were are not bound again."""
    there = {bound.op.name: bound for bound in known}
    return tuple(
        there[op.name] if op.name in there and there[op.name].op == op else descriptions.bind(op, graph)
        for op in graph.ops
    )


class Brought:
    """What moves so that ops can read tensors."""

    def __init__(self, decided: Decided, tables: CostTables) -> None:
        self.ops = {bound.op.name: bound for bound in decided.ops}
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
        bound, total = self.ops[op], 0
        for slot in _slots(bound, name):
            key = (bound.content, slot, tiling, strategy)
            if key not in self._known:
                tensor = self._graph.tensors[name]
                table = self._tables.input_bytes(bound, slot, tensor, (tiling,), (strategy,))
                self._known[key] = int(table[0, 0])
            total += self._known[key]
        return total


def _slots(bound: BoundOp, name: str) -> Iterator[int]:
    """Where an op has a tensor delivered."""
    delivered = bound.delivered_slots.items()
    return (slot for slot, first in delivered if slot == first and bound.op.inputs[slot] == name)


class _Names:
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
