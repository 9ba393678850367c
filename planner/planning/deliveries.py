"""Shared deliveries as a choice of the search: what several readers have brought to them is brought once.

A plan is found first in which every reader has its own delivery. Where it pays for a tensor more than once, two things
are tried:

1. *As it is*: readers that need the same, worker by worker, share one delivery of just that, and everything else stays.
   It saves what all of them pay but for one delivery, and takes no search. An op that reads the tensor at two places
   (``MatMul(X, X)``), and needs the same for both, pays twice by itself.
2. *Searched*: all that pay are offered a delivery in common, and those of them that need the same one of their own
   behind it, and the graph is planned again. A delivery is a tensor of that graph, with a tiling of its own that may
   be its source's; so plans without sharing, and those of the first way, are among those that are searched. In an
   unrolled network all readers of every tensor are offered one, too, and those that read it by the same index map their
   own; in any other with much effort.

The plan of the least cost is taken, the one with less sharing of equal ones. A delivery stays only if it saves
bytes, for it holds memory from its first reader to its last. The bound of a plan that was searched is that of its
search: these readers may share deliveries, and each of all others has its own. Where readers leave a delivery that
others keep, a plan may cost less than that bound: they were offered it together. With much effort the plan's own
deliveries are then bounded, each offered to its readers.

A tensor x of S bytes on two workers, owned as ``S(0)/2``. Its readers a and b need all of it, c needs columns::

    each for itself               as it is                        searched
    x -- S ----> a                x -- S ----> d -+-> a           x -- S ----> d -+-> a
    x -- S ----> b                                +-> b                           +-> b
    x -- S/2 --> c                x -- S/2 -----------> c                         +-> c   (reads its columns of d)
    2.5 S bytes                   1.5 S                           S

The delivery d is ``R/2``. As it is, c differs from a and b, and keeps its own fetch; a search that offers d to all
three finds that d already has the columns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from planner.algebra.tiling import Tiling
from planner.artifacts.plan import OpStrategy
from planner.cost.tables import CostTables
from planner.errors import InfeasibleError
from planner.graph.core.model import Graph
from planner.graph.step.deliveries import SharedDelivery, with_deliveries
from planner.planning.paid_again import Brought, Names, Payer, Saving, paid_for_twice, savings, slots_of
from planner.search.bound.certify import BOUND
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.repeats.unrolled import find_copies
from planner.search.request import SearchRequest
from planner.search.schedule import Schedule, schedule_of
from planner.stop import StoppedError
from planner.tdl.descriptions import Descriptions

_SHARED = "a search with deliveries that readers share"


def shared(decided: Decision, descriptions: Descriptions, ask: SearchRequest) -> Decision:
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
    paying, schedule, searches = paid_for_twice(decided, tables), schedule_of(ask.effort), [decided]
    best = with_savings(decided, savings(decided, paying), descriptions, tables)
    for deliveries in _worth_searching(decided, paying, schedule):
        if ask.stop.leaves_out(_SHARED):
            break
        graph = with_deliveries(decided.graph, deliveries)
        ops = descriptions.bind_all(graph, decided.ops)
        with contextlib.suppress(InfeasibleError):  # too entangled with deliveries: what is known stays
            ask.progress("planning again: with deliveries that readers share", cost=best.cost)
            try:
                searched = decide(graph, ops, again)
            except StoppedError:
                ask.stop.leaves_out(_SHARED)
                break
            best = _better(best, _without_idle(decided, searched, deliveries, descriptions, tables), searched)
            searches.append(searched)
    if schedule.bounds_what_is_shared:
        best, bound_searches = _bounded(decided, best, descriptions, ask)
        searches += bound_searches
    return replace(
        best,
        search_seconds=sum(search.search_seconds for search in searches),
        eliminated_entries=sum(search.eliminated_entries for search in searches),
    )


def _bounded(
    decided: Decision, best: Decision, descriptions: Descriptions, ask: SearchRequest
) -> tuple[Decision, list[Decision]]:
    """A plan that shares deliveries, with a gap: each of them is offered to its readers, and all else is free again.

    Args:
        decided: a plan in which every reader has its own delivery.
        best: the plan; one that shares nothing, or has a gap, is left as it is.
        descriptions: of the model's operators.
        ask: what the plan was asked for.

    Returns:
        The plan, or a better one that the bound led to, without a gap where a bound would be too much work; and the
        searches that were made.
    """
    searches: list[Decision] = []
    # The cost falls from one round to the next: a plan that costs no less is among those that were bounded.
    while best.deliveries and best.lower is None and not ask.stop.leaves_out(BOUND):
        ask.progress("bounding plans that share these deliveries", cost=best.cost)
        try:
            searched = decide(best.graph, best.ops, replace(ask, begun=best, incumbent=None, is_needed=False))
        except StoppedError:
            ask.stop.leaves_out(BOUND)
            break
        searches.append(searched)
        if searched.lower is None:
            break
        best = _better(best, _without_idle(decided, searched, best.deliveries, descriptions, ask.tables), searched)
    return best, searches


def _worth_searching(
    decided: Decision, paying: Mapping[str, Sequence[Payer]], schedule: Schedule
) -> Iterator[list[SharedDelivery]]:
    """Deliveries to be offered: to those that pay for a tensor again, if that is enough; or to all readers."""
    graph, moved = decided.graph, decided.moved_bytes
    again = sum(payer.moved_bytes for payers in paying.values() for payer in payers)
    again -= sum(max(payer.once_bytes for payer in payers) for payers in paying.values())
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


def _all_readers(decided: Decision) -> Iterator[tuple[str, list[tuple[str, Hashable]]]]:
    """The ops that read each tensor that several places read, and what is equal for readers by the same index map."""
    graph = decided.graph
    bound = {described.op.name: described for described in decided.ops}
    for name in decided.tilings:
        readers: list[tuple[str, Hashable]] = []
        places = 0
        for op in graph.consumers[name]:
            slots = tuple(slots_of(bound[op.name], name))
            if slots:
                readers.append((op.name, (bound[op.name].content, slots)))
                places += len(slots)
        if places > 1 and graph.tensors[name].elements > 1:
            yield name, readers


def offers(graph: Graph, readers: Mapping[str, Sequence[tuple[str, Hashable]]]) -> list[SharedDelivery]:
    """Offers of a delivery to all readers of each tensor, and of one behind it to those that are alike.

    Args:
        graph: without deliveries.
        readers: by tensor ops, and what is equal for those that may want one of their own.
    """
    names = Names(graph)
    offered: list[SharedDelivery] = []
    for tensor, ops in readers.items():
        common = names.next(tensor)
        groups: dict[Hashable, list[str]] = {}
        for op, kind in ops:
            groups.setdefault(kind, []).append(op)
        several = [group for group in groups.values() if 1 < len(group) < len(ops)]
        nested = [SharedDelivery(names.next(tensor), common, tuple(group)) for group in several]
        grouped = {op for group in several for op in group}
        singles = (op for op, _ in ops if op not in grouped)
        offered += [SharedDelivery(common, tensor, (*singles, *(delivery.name for delivery in nested))), *nested]
    return offered


def with_savings(
    decided: Decision, chosen: Sequence[Saving], descriptions: Descriptions, tables: CostTables
) -> Decision:
    """The plan with these deliveries shared, under names of its own, and everything else as it is; without a bound."""
    if not chosen:
        return decided
    names = Names(decided.graph)
    deliveries = [replace(saving.delivery, name=names.next(saving.delivery.tensor)) for saving in chosen]
    tilings = {delivery.name: saving.tiling for delivery, saving in zip(deliveries, chosen, strict=True)}
    plan = _with(decided, decided, deliveries, tilings, descriptions, tables)
    assert decided.moved_bytes - plan.moved_bytes == sum(saving.saved_bytes for saving in chosen), (
        "sharing saves what all readers pay, but for one delivery"
    )
    return plan


def _without_idle(
    decided: Decision,
    searched: Decision,
    deliveries: Sequence[SharedDelivery],
    descriptions: Descriptions,
    tables: CostTables,
) -> Decision:
    """The searched plan less the shared deliveries that save no bytes, and less the readers for whom they save none."""
    plan = searched
    brought = Brought(searched, tables)
    strategies = {name: strategy.tiling for name, strategy in plan.strategies.items()}
    # Delivering in one tiling and holding in another moves no less than delivering in the other.
    strategies.update({offer.name: plan.tilings[offer.name] for offer in deliveries})
    remaining = {offer.name: _Share(offer.tensor, dict.fromkeys(offer.readers, offer.name)) for offer in deliveries}

    def moved(reader: str, reads: str, held_as: str) -> int:
        return brought.moved_bytes(reader, reads, plan.tilings[held_as], strategies[reader])

    source = {offer.name: offer.tensor for offer in deliveries}
    is_settled = False
    while not is_settled:
        is_settled = True
        for name in reversed(list(remaining)):
            share = remaining[name]
            direct = {reader: moved(reader, reads, share.tensor) for reader, reads in share.readers.items()}
            through = {reader: moved(reader, reads, name) for reader, reads in share.readers.items()}
            leaving = [reader for reader in direct if direct[reader] <= through[reader]]
            staying = [reader for reader in direct if reader not in leaving]
            saved = sum(direct[reader] - through[reader] for reader in staying)
            if saved <= moved(name, source[name], share.tensor):
                leaving, staying = list(direct), []
            if leaving:
                is_settled = False
                for reader in leaving:
                    reads = share.readers.pop(reader)
                    if reader in remaining:
                        remaining[reader].tensor = share.tensor
                    if share.tensor in remaining:
                        remaining[share.tensor].readers[reader] = reads
            if not staying:
                del remaining[name]
                if share.tensor in remaining:
                    del remaining[share.tensor].readers[name]
    place = {op.name: number for number, op in enumerate(searched.graph.ops)}
    shared_deliveries = [
        SharedDelivery(name, entry.tensor, tuple(sorted(entry.readers, key=place.__getitem__)))
        for name, entry in remaining.items()
    ]
    tilings = {name: plan.tilings[name] for name in remaining}
    return _with(decided, searched, shared_deliveries, tilings, descriptions, tables)


@dataclass
class _Share:
    """A delivery as it becomes."""

    tensor: str
    readers: dict[str, str] = field(default_factory=dict)
    """And the tensor that each of them reads in the graph that was searched."""


def _better(best: Decision, plan: Decision, searched: Decision) -> Decision:
    """The plan if it costs less than the incumbent; else the incumbent.

    Args:
        best: the incumbent.
        plan: the searched plan less the deliveries that save no bytes (``_without_idle``).
        searched: the plan as the search left it: with every delivery that it was offered, and with its gap.
    """
    if plan.cost < best.cost:
        return plan.with_bound(searched.lower)
    return best.with_bound(searched.lower) if best.deliveries and best.lower is None else best


def _with(
    decided: Decision,
    template: Decision,
    deliveries: Sequence[SharedDelivery],
    tilings: Mapping[str, Tiling],
    descriptions: Descriptions,
    tables: CostTables,
) -> Decision:
    """A plan with these deliveries, and no others.

    Args:
        decided: the graph without deliveries, and its ops.
        template: what all else is as in; it may have more deliveries.
        deliveries: are shared.
        tilings: theirs.
        descriptions: of the model's operators.
        tables: of bytes.
    """
    graph = with_deliveries(decided.graph, deliveries)
    ops = descriptions.bind_all(graph, decided.ops)
    copies = {bound.op.name: bound.variables for bound in ops if bound.op.name in tilings}
    own = {name: OpStrategy(tilings[name], tuple(index.name for index in copies[name])) for name in copies}
    tilings, strategies = {**template.tilings, **tilings}, {**template.strategies, **own}
    return template.with_tilings(tilings, strategies, tables, graph=graph, ops=ops, deliveries=tuple(deliveries))
