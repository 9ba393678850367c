"""Where runs of ops are broken into several segments, so that a worker holds no more than its ops need at once.

All that a segment reads and makes is in memory as long as the segment runs, and what is made and used up inside of it
is allocated beside the arena. One op in a segment of its own holds the least that is possible in the original order
(Tofu, section 6); a long segment costs less calling, and lets the runtime fuse. So ops are joined as long as the worker
then needs no more at once than at its fullest op, and little of it beside the arena. Segments are broken at the same
ops on all workers, so that equal segments stay equal.

Time is counted in half ops: op number n happens at 2n + 1, and the fetches of an epoch at 2n, if n is its first op.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from planner.graph.model import Graph
from planner.partition.alive import sources_read
from planner.partition.lower import Epoch, Lowered
from planner.partition.workspace import MOVING

_INSIDE: Final = 32
"""Beside the arena may lie one part in so many of what a worker needs at its fullest op."""


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
    """What a worker holds, and when: one entry for each buffer, in the order in which they are filled."""

    filled: NDArray[np.int64]
    until: NDArray[np.int64]
    """When it is read for the last time."""
    sizes: NDArray[np.int64]
    """In bytes; 0 where a next state may be written over its state."""
    behind: NDArray[np.int64]
    """For each op the last one that must be in an earlier segment, so that its next state may be written over the
    state; -1 if none."""
    resident_bytes: int
    """Of what is there all the time."""

    @property
    def key(self) -> tuple[bytes, ...]:
        """Equal for workers that hold the same."""
        return tuple(array.tobytes() for array in (self.filled, self.until, self.sizes, self.behind))


def broken(graph: Graph, lowered: Lowered) -> Lowered:
    """The program with epochs that are one segment each: those whose ops would hold too much become several.

    Args:
        graph: that was planned.
        lowered: without work whose results nobody reads.
    """
    number = {op.name: position for position, op in enumerate(graph.ops)}
    runs = _runs(lowered.epochs, number)
    every = (_holding(graph, lowered, runs, worker) for worker in range(len(lowered.buffers)))
    limits = [_Limit(one) for one in {one.key: one for one in every}.values()]
    epochs: list[Epoch] = []
    for epoch, run in zip(lowered.epochs, runs, strict=True):
        epochs.extend(_parts(epoch, run, _firsts(run, limits)))
    return replace(lowered, epochs=tuple(epochs))


class _Limit:
    """Says of a run of ops whether one segment of them needs no more than a worker's fullest op."""

    def __init__(self, holding: _Holding) -> None:
        self._holding = holding
        times = 2 * len(holding.behind) + 2
        filled = _summed(holding.filled, holding.sizes, times)
        held = (filled - _summed(holding.until + 1, holding.sizes, times + 1)[:-1]).cumsum()
        self._most = int(held.max())
        self._room = (self._most + holding.resident_bytes) // _INSIDE
        self._carried = (held - filled)[1::2].tolist()
        """Bytes that are there when each op begins, fetched for it or earlier."""
        self._places = np.searchsorted(holding.filled, np.arange(times + 1)).tolist()
        self._behind = holding.behind.tolist()

    def allows(self, first: int, last: int) -> bool:
        """True if ops ``first`` to ``last``, of one epoch, may be one segment."""
        if self._behind[last] >= first:
            return False
        holding, start, end = self._holding, 2 * first + 1, 2 * last + 1
        mine = slice(self._places[start], self._places[end + 1])
        sizes, until = holding.sizes[mine], holding.until[mine]
        is_inside = until <= end
        inside = int(sizes[is_inside].sum())
        outside = self._carried[first] + int(sizes.sum()) - inside
        if outside + inside > self._most or inside > self._room:
            sizes, length = sizes[is_inside], end - start + 2
            change = _summed(holding.filled[mine][is_inside] - start, sizes, length)
            change -= _summed(until[is_inside] + 1 - start, sizes, length)
            inside = int(change.cumsum().max())
        return outside + inside <= self._most and inside <= self._room


def _summed(places: NDArray[np.int64], sizes: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """The sum of the sizes at each place; exact up to 2^53 bytes."""
    return np.bincount(places, sizes, length).astype(np.int64)


def _firsts(run: _Run, limits: Sequence[_Limit]) -> list[int]:
    """The number of the first op of each segment of an epoch: the first of all, and those behind a break."""
    firsts = [run.start]
    for position in range(1, len(run.ops)):
        last = run.start + position
        if not _is_allowed(limits, firsts[-1], last):
            before = last - 1
            while before > firsts[-1] and run.are_moving[before - run.start] and _is_allowed(limits, before, last):
                before -= 1
            firsts.append(before + 1)
    return firsts


def _is_allowed(limits: Sequence[_Limit], first: int, last: int) -> bool:
    return all(limit.allows(first, last) for limit in limits)


def _parts(epoch: Epoch, run: _Run, firsts: Sequence[int]) -> list[Epoch]:
    """An epoch broken before some of its ops."""
    if len(firsts) == 1:
        return [epoch]
    every = range(len(epoch.work))
    parts = [Epoch([[] for _ in every], [[] for _ in every]) for _ in firsts]
    parts[0].fetches = epoch.fetches
    numbers = np.searchsorted(firsts, run.start + np.arange(len(run.ops)), "right") - 1
    part_of = dict(zip(run.ops, numbers.tolist(), strict=True))
    for worker, works in enumerate(epoch.work):
        for work in works:
            parts[part_of[work.op]].work[worker].append(work)
    return parts


def _runs(epochs: Sequence[Epoch], number: Mapping[str, int]) -> list[_Run]:
    """The ops of every epoch in the order of the graph, numbered through."""
    runs: list[_Run] = []
    start = 0
    for epoch in epochs:
        moving: dict[str, bool] = {}
        for works in epoch.work:
            for work in works:
                is_moving = all(node.op_type in MOVING for node in work.nodes)
                moving[work.op] = moving.get(work.op, True) and is_moving
        ops = tuple(sorted(moving, key=number.__getitem__))
        runs.append(_Run(start, ops, tuple(moving[op] for op in ops)))
        start = runs[-1].stop
    return runs


def _holding(graph: Graph, lowered: Lowered, runs: Sequence[_Run], worker: int) -> _Holding:
    buffers = lowered.buffers[worker]
    filled: dict[str, int] = {}
    until: dict[str, int] = {}
    read: dict[int, dict[str, None]] = {}
    """What each op reads."""
    for epoch, run in zip(lowered.epochs, runs, strict=True):
        filled.update((fetch.target, 2 * run.start) for fetch in epoch.fetches[worker])
        number = {op: run.start + position for position, op in enumerate(run.ops)}
        for work in epoch.work[worker]:
            op = number[work.op]
            reads = read.setdefault(op, {})
            for node in work.nodes:
                reads.update(dict.fromkeys(node.inputs))
                until.update(dict.fromkeys(node.inputs, 2 * op + 1))
                filled.update((name, 2 * op + 1) for name in node.outputs if name in buffers)
    for epoch_number, source in sources_read(lowered.epochs):
        if source.worker == worker:
            until[source.buffer] = max(until.get(source.buffer, 0), 2 * runs[epoch_number].start)
    stop = runs[-1].stop if runs else 0
    over = {
        pair.following: pair.current
        for pair in graph.state
        if pair.following in filled
        and pair.current in buffers
        and pair.current not in filled
        and buffers[pair.current].region == buffers[pair.following].region
        and until.get(pair.current, 0) < filled[pair.following] + filled[pair.following] % 2
    }
    readers: dict[str, list[int]] = {name: [] for name in over.values()}
    for op, reads in read.items():
        for name in readers.keys() & reads.keys():
            readers[name].append(op)
    first_of = {op: run.start for run in runs for op in range(run.start, run.stop)}
    behind = np.full(stop, -1, np.int64)
    for following, current in over.items():
        op, is_made = divmod(filled[following], 2)
        near = [reader for reader in readers[current] if first_of[op] <= reader < op]
        if is_made and near:
            behind[op] = max(behind[op], max(set(near) - _before(op, min(near), read, filled), default=-1))
    until.update(dict.fromkeys(lowered.collected[worker], 2 * stop + 1))
    names = sorted(filled, key=lambda name: (filled[name], name))
    return _Holding(
        np.array([filled[name] for name in names], np.int64),
        np.array([max(filled[name], until.get(name, 0)) for name in names], np.int64),
        np.array([0 if name in over else buffers[name].size_bytes for name in names], np.int64),
        behind,
        sum(buffer.size_bytes for name, buffer in buffers.items() if name not in filled),
    )


def _before(op: int, first: int, read: Mapping[int, Mapping[str, None]], filled: Mapping[str, int]) -> set[int]:
    """The ops, from ``first`` on, on which an op depends."""
    found: set[int] = set()
    waiting = [op]
    while waiting:
        for name in read.get(waiting.pop(), ()):
            maker, is_made = divmod(filled.get(name, 0), 2)
            if is_made and maker >= first and maker not in found:
                found.add(maker)
                waiting.append(maker)
    return found
