"""Breaks between segments: ops of a worker that form one, so that it holds no more than its ops need at once.

All that a segment reads and makes is in memory as long as the segment runs, and what is made and used up inside of it
is allocated beside the arena. One op in a segment of its own, what it needs fetched just before, holds the least that
is possible in the original order (Tofu, section 6); a long segment costs less calling, and lets the runtime fuse. So
ops are joined as long as the worker then needs no more at once than at its fullest op, and little of it beside the
arena. What the ops of a segment need is fetched before it, so all that is fetched must have been made before it.
Segments are broken at the same ops on all workers, so that equal segments stay equal.

An op that computes again what another one has computed is never in one segment with that: a runtime would compute it
once, and keep it.

Time is counted in half ops: op number n happens at 2n + 1, and the fetches of an epoch at 2n, if n is its first op.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.artifacts.in_place import Flow, FlowNode
from planner.counted import counted
from planner.graph.core.model import Graph
from planner.graph.rewriting.recomputation import computed_before
from planner.partition.alike import Kinds
from planner.partition.local_work import LocalWork
from planner.partition.lowered import Epoch, Lowered
from planner.partition.workspace import MOVING

_INSIDE: Final = 32
"""At most 1/32 of the bytes that a worker holds at its fullest op may lie inside of segments, beside the arena."""
_SPARE: Final = 16
"""Where all results lie in the arena, ops are joined only while 1/16 of the bytes at the fullest op stay free: buffers
that live long are hard to place."""


@dataclass(frozen=True, slots=True)
class _Run:
    """The ops of one epoch, on all workers together."""

    start: int
    """The number of the first."""
    ops: tuple[str, ...]
    are_moving: tuple[bool, ...]
    """Which only move elements: a runtime joins them with their readers."""

    @property
    def stop(self) -> int:
        """The number behind the last; an epoch without ops takes one, too."""
        return self.start + max(1, len(self.ops))


@dataclass(frozen=True, slots=True, eq=False)
class _Holding:
    """The buffers of a worker, and their times: one entry for each buffer, in the order in which they are filled."""

    filled: NDArray[np.int64]
    until: NDArray[np.int64]
    """When it is read for the last time."""
    sizes: NDArray[np.int64]
    """In bytes; 0 where a next state may be written over its state."""
    behind: NDArray[np.int64]
    """For each op, the last op that must be in an earlier segment, so that a next state which the op makes, or which is
    fetched before the op, can be written over its state; -1 if there is no such op."""
    resident_bytes: int
    """Of what is there all the time."""

    @property
    def key(self) -> tuple[bytes, ...]:
        """Equal for workers that hold the same."""
        return tuple(array.tobytes() for array in (self.filled, self.until, self.sizes, self.behind))


def broken(graph: Graph, lowered: Lowered, kinds: Kinds, *, lean: bool = False) -> Lowered:
    """The program with epochs that are one segment each, as few as memory allows.

    Args:
        graph: that was planned.
        lowered: without work whose results nobody reads; a new epoch begins wherever something is fetched.
        kinds: of its workers.
        lean: what is inside of segments will lie in the arena, too.
    """
    number = {op.name: position for position, op in enumerate(graph.ops)}
    runs = _runs(lowered.epochs, number)
    of_kind = [_holding(graph, lowered, runs, kinds, worker) for worker in kinds.first]
    holdings = {of_kind[kind].key: of_kind[kind] for kind in kinds.of}
    limits = [_Limit(holding, lean=lean) for holding in holdings.values()]
    needed = np.maximum(_needed_before(lowered.epochs, runs, kinds), _computed_before(graph, runs)).tolist()
    firsts = _firsts(runs, needed, limits)
    return replace(lowered, epochs=tuple(_parts(lowered.epochs, runs, firsts)))


class _Limit:
    """Says of a run of ops whether one segment of them needs no more than a worker's fullest op."""

    def __init__(self, holding: _Holding, *, lean: bool = False) -> None:
        self._holding = holding
        times = 2 * len(holding.behind) + 2
        filled = _summed(holding.filled, holding.sizes, times)
        held = (filled - _summed(holding.until + 1, holding.sizes, times + 1)[:-1]).cumsum()
        self._most = int(held.max())
        self._room = (self._most + holding.resident_bytes) // _INSIDE
        self._is_lean = lean
        self._carried = (held - filled)[1::2].tolist()
        """Bytes that are there when each op begins, fetched for it or earlier."""
        self._places = np.searchsorted(holding.filled, np.arange(times + 1)).tolist()
        self._behind = holding.behind.tolist()

    def allows(self, first: int, last: int) -> bool:
        """True if memory lets ops ``first`` to ``last`` be one segment, all but the last being known to be."""
        if self._behind[last] >= first:
            return False
        holding, start, end = self._holding, 2 * first + 1, 2 * last + 1
        mine = slice(self._places[start], self._places[end + 1])
        filled, sizes, until = holding.filled[mine], holding.sizes[mine], holding.until[mine]
        if self._is_lean:
            return int(self._carried[first] + sizes.sum()) <= self._most - self._most // _SPARE
        is_inside = (until <= end) & (filled % 2 == 1)
        inside = int(sizes[is_inside].sum())
        outside = self._carried[first] + int(sizes.sum()) - inside
        if outside + inside > self._most or inside > self._room:
            sizes, length = sizes[is_inside], end - start + 2
            change = _summed(filled[is_inside] - start, sizes, length)
            change -= _summed(until[is_inside] + 1 - start, sizes, length)
            inside = int(change.cumsum().max())
        return outside + inside <= self._most and inside <= self._room


def _summed(places: NDArray[np.int64], sizes: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """The sum of the sizes at each place; exact up to 2^53 bytes."""
    return np.bincount(places, sizes, length).astype(np.int64)


def _firsts(runs: Sequence[_Run], needed: Sequence[int], limits: Sequence[_Limit]) -> list[int]:
    """The number of the first op of each segment.

    Args:
        runs: of each epoch.
        needed: by op, the last one that must be in an earlier segment; -1 if none must.
        limits: of each worker.
    """
    are_moving = [moving for run in runs for moving in (run.are_moving or (False,))]

    def is_allowed(first: int, last: int) -> bool:
        return needed[last] < first and all(limit.allows(first, last) for limit in limits)

    firsts = [0] if are_moving else []
    for last in counted(range(1, len(are_moving)), "making programs: joining op", len(limits)):
        if not is_allowed(firsts[-1], last):
            before = last - 1
            while before > firsts[-1] and are_moving[before] and is_allowed(before, last):
                before -= 1
            firsts.append(before + 1)
    return firsts


def _parts(epochs: Sequence[Epoch], runs: Sequence[_Run], firsts: Sequence[int]) -> list[Epoch]:
    """The epochs joined and broken so that each begins with one of these ops."""
    every = range(len(epochs[0].work)) if epochs else range(0)
    parts = [Epoch([[] for _ in every], [[] for _ in every]) for _ in firsts]
    for epoch, run in zip(epochs, runs, strict=True):
        numbers = (np.searchsorted(firsts, run.start + np.arange(max(1, len(run.ops))), "right") - 1).tolist()
        part_of = dict(zip(run.ops, numbers, strict=False))
        for worker in every:
            parts[numbers[0]].fetches[worker].extend(epoch.fetches[worker])
            for work in epoch.work[worker]:
                parts[part_of[work.op]].work[worker].append(work)
    return parts


def _runs(epochs: Sequence[Epoch], number: Mapping[str, int]) -> list[_Run]:
    """The ops of every epoch in the order of the graph, numbered through."""
    runs: list[_Run] = []
    start = 0
    for epoch in epochs:
        moving: dict[str, bool] = {}
        for work in {id(work): work for works in epoch.work for work in works}.values():
            is_moving = all(node.op_type in MOVING for node in work.nodes)
            moving[work.op] = moving.get(work.op, True) and is_moving
        ops = tuple(sorted(moving, key=number.__getitem__))
        runs.append(_Run(start, ops, tuple(moving[op] for op in ops)))
        start = runs[-1].stop
    return runs


def _needed_before(epochs: Sequence[Epoch], runs: Sequence[_Run], kinds: Kinds) -> list[int]:
    """The last op, on any worker, on whose results the fetches before each op depend; -1 if they depend on none."""
    maker_of: list[dict[str, int]] = [{} for _ in kinds.reads]
    """By kind, what work makes."""
    fetched: list[dict[str, int]] = [{} for _ in kinds.of]
    """By worker."""
    needed = [-1] * (runs[-1].stop if runs else 0)
    firsts = kinds.first
    for epoch, run in zip(epochs, runs, strict=True):
        last_of_piece: dict[int, int] = {}
        for worker, fetches in enumerate(epoch.fetches):
            for fetch in fetches:
                for piece in fetch.pieces:
                    if id(piece) not in last_of_piece:  # workers of a round share its pieces
                        last_of_piece[id(piece)] = max(
                            [
                                max(
                                    maker_of[kinds.of[source.worker]].get(source.buffer, -1),
                                    fetched[source.worker].get(source.buffer, -1),
                                )
                                for source in piece.sources
                            ]
                        )
                last = max([last_of_piece[id(piece)] for piece in fetch.pieces])
                fetched[worker][fetch.target] = last
                needed[run.start] = max(needed[run.start], last)
        number = {op: run.start + position for position, op in enumerate(run.ops)}
        for mine, worker in zip(maker_of, firsts, strict=True):
            for work in epoch.work[worker]:
                mine.update(dict.fromkeys(work.makes, number[work.op]))
    return needed


def _computed_before(graph: Graph, runs: Sequence[_Run]) -> list[int]:
    """The op that has computed the same before, for each op; -1 if none has."""
    number = {op: run.start + position for run in runs for position, op in enumerate(run.ops)}
    originals = [-1] * (runs[-1].stop if runs else 0)
    for op, at in number.items():
        originals[at] = number.get(computed_before(graph.copies, op) or "", -1)
    return originals


def _holding(graph: Graph, lowered: Lowered, runs: Sequence[_Run], kinds: Kinds, worker: int) -> _Holding:
    """What a worker holds.

    Args:
        graph: that was planned.
        lowered: the program.
        runs: the ops of each epoch.
        kinds: of the workers.
        worker: whose.
    """
    buffers = lowered.buffers[worker]
    filled: dict[str, int] = {}
    until: dict[str, int] = {}
    works_of: dict[int, list[LocalWork]] = {}
    """Of each op."""
    for epoch, run in zip(lowered.epochs, runs, strict=True):
        filled.update(dict.fromkeys([fetch.target for fetch in epoch.fetches[worker]], 2 * run.start))
        number = {op: run.start + position for position, op in enumerate(run.ops)}
        for work in epoch.work[worker]:
            op = number[work.op]
            works_of.setdefault(op, []).append(work)
            until.update(dict.fromkeys(work.reads, 2 * op + 1))
            filled.update(dict.fromkeys(work.makes, 2 * op + 1))
    filled = {name: time for name, time in filled.items() if name in buffers}
    for run, reads in zip(runs, kinds.reads[kinds.of[worker]], strict=True):
        for name in reads:
            until[name] = max(until.get(name, 0), 2 * run.start)
    stop = runs[-1].stop if runs else 0
    nodes = [(op, node) for op, works in works_of.items() for work in works for node in work.nodes]
    flow = Flow([FlowNode("" if node.domain else node.op_type, node.inputs, node.outputs) for _, node in nodes])
    over: dict[str, str] = {}
    behind = np.full(stop, -1, np.int64)
    for pair, is_over in zip(graph.state, kinds.is_over[kinds.of[worker]], strict=True):
        state, following = pair.current, pair.following
        op, is_made = divmod(filled.get(following, -1), 2)
        if not is_over or op < 0 or state in filled:
            continue
        # A fetch may not write over what it reads, nor over what others read meanwhile.
        apart = {nodes[number][0] for number in flow.apart(state, following)} if is_made else {until.get(state, 0) // 2}
        if op not in apart and until.get(state, 0) < filled[following] + is_made:
            over[following] = state
            for peer in apart:
                first, last = sorted((op, peer))
                behind[last] = max(behind[last], first)
    until.update(dict.fromkeys(lowered.collected[worker], 2 * stop + 1))
    names = sorted(sorted(filled), key=filled.__getitem__)
    return _Holding(
        np.array([filled[name] for name in names], np.int64),
        np.array([max(filled[name], until.get(name, 0)) for name in names], np.int64),
        np.array([0 if name in over else buffers[name].size_bytes for name in names], np.int64),
        behind,
        sum(buffer.size_bytes for name, buffer in buffers.items() if name not in filled),
    )
