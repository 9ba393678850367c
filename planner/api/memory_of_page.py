"""What a page of a plan tells of memory: by worker what is needed step by step, and where the parts of a step begin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from planner.artifacts.program import Fetch, Program, WorkerProgram
from planner.artifacts.waits import last_reads
from planner.graph.model import Graph
from planner.partition.memory import live_spans
from planner.partition.occupancy import occupancy
from planner.report.page.charts import fullest_moments
from planner.report.page.columns import forward_ops
from planner.report.page.facts import Memory

_HELD = 3
"""Buffers that are named of a stretch of steps."""


def memory_of_page(program: Program, graph: Graph, levels: Sequence[Sequence[int]]) -> tuple[Memory, ...]:
    """The memory of each worker; of the one that needs most, the largest buffers over time, too.

    Args:
        program: with arenas.
        graph: that it is of.
        levels: of every step of every worker.
    """
    reads = last_reads(program.workers, levels)
    totals = program.peak_bytes
    worst = totals.index(max(totals))
    forward = forward_ops(graph)
    found = []
    for worker in program.workers:
        moments = len(worker.steps) + 1
        change = np.zeros(moments + 1, np.int64)
        spans = live_spans(worker, levels, reads)
        for name in _written_over(program, worker):
            spans.pop(name, None)
        for size, first, last in spans.values():
            change[first] += size
            change[last + 1] -= size
        live = np.cumsum(change)[:moments]
        is_told = worker.worker == worst and worker.arena is not None
        found.append(
            Memory(
                live_bytes=live,
                workspace_bytes=worker.workspace_bytes,
                total_bytes=totals[worker.worker],
                largest=occupancy(program, graph.roles, worst).largest if is_told else (),
                held=_held(spans, fullest_moments(live)) if is_told else {},
                begins=_begins(worker, graph, forward),
            )
        )
    return tuple(found)


def _held(spans: Mapping[str, tuple[int, int, int]], moments: Sequence[int]) -> dict[int, tuple[tuple[str, int], ...]]:
    """The largest buffers that are needed at each of some moments, steps of the worker's program."""
    names = sorted(spans, key=lambda name: (-spans[name][0], name))
    sizes, firsts, lasts = np.array([spans[name] for name in names], np.int64).reshape(-1, 3).T
    found = {}
    for moment in moments:
        there = np.flatnonzero((firsts <= moment) & (moment <= lasts))[:_HELD].tolist()
        found[moment] = tuple((names[at], int(sizes[at])) for at in there)
    return found


def _begins(worker: WorkerProgram, graph: Graph, forward: frozenset[str]) -> dict[str, int]:
    """The steps in which the first op of no result runs, and the first that makes a next state."""
    if not graph.state:
        return {}
    updates = {graph.producer[pair.following].name for pair in graph.state if pair.following in graph.producer}
    found: dict[str, int] = {}
    for number, step in enumerate(worker.steps):
        ops = () if isinstance(step, Fetch) else step.ops
        if not forward.issuperset(ops):
            found.setdefault("backward", number)
        if not updates.isdisjoint(ops):
            found.setdefault("update", number)
    return found


def _written_over(program: Program, worker: WorkerProgram) -> Iterator[str]:
    """Next states that lie where their states lie, and take no room of their own."""
    offsets = {} if worker.arena is None else worker.arena.offsets
    for pair in program.state:
        if pair.following in offsets and offsets[pair.following] == offsets.get(pair.current):
            yield pair.following
