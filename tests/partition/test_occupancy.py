"""What a worker holds over its steps adds up to the peak that the plan states, to the byte."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from planner import opdefs
from planner.artifacts.program import Fetch, Program
from planner.features.zoo.models import mlp
from planner.graph.core.model import Graph
from planner.graph.step.purposes import Purpose
from planner.partition.build import partition
from planner.partition.occupancy import limits_by_worker, occupancy, tightest
from planner.search.decision import Decision
from planner.search.model.problem import Problem


def planned(random_plan: Callable[[Problem, int, int], Decision], workers: int, seed: int) -> tuple[Program, Graph]:
    graph = mlp(3, 12, 16)
    ops = opdefs.standard().bind_all(graph)
    return partition(graph, ops, random_plan(Problem(graph, ops, workers), workers, seed)).program, graph


@pytest.mark.parametrize("workers", [1, 3, 4])
def test_the_most_that_is_held_is_the_peak(random_plan: Callable[[Problem, int, int], Decision], workers: int) -> None:
    program, graph = planned(random_plan, workers, seed=1)
    assert len(program.workers) == workers
    assert all(worker.steps for worker in program.workers)
    for worker, peak in zip(program.workers, program.peak_bytes, strict=True):
        found = occupancy(program, graph, worker.worker)
        assert worker.arena is not None
        assert found.total_bytes == peak == int(found.held_bytes.max()) == int(found.held_bytes[found.fullest])
        assert sum(found.amounts(found.fullest).values()) == peak
        assert len(found.held_bytes) == len(worker.steps) + 1
        assert all((amounts >= 0).all() for amounts in found.by_purpose.values())
        # Added up anew, from the steps alone: what a step reads or writes is held in it, and apart in the arena.
        offsets = worker.arena.offsets
        over = {pair.following for pair in program.state if offsets[pair.following] == offsets[pair.current]}
        reserved = worker.workspace_bytes + int(found.by_purpose.get(Purpose.GAPS, np.zeros(1, np.int64))[0])
        for number, step in enumerate(worker.steps):
            held = {one.buffer: one for one in found.at(number)}
            assert sum(one.size_bytes for one in held.values()) + reserved == found.held_bytes[number]
            if isinstance(step, Fetch):
                own = {source.buffer for source in step.sources if source.worker == worker.worker} | {step.target}
            else:
                own = {*step.inputs, *step.outputs}
            assert own - over <= held.keys()
            ends = sorted((offsets[name], one.size_bytes) for name, one in held.items())
            assert all(start + size <= later for (start, size), (later, _) in pairwise(ends))


def test_without_an_arena_each_buffer_has_memory_of_its_own_all_the_time(
    random_plan: Callable[[Problem, int, int], Decision],
) -> None:
    program, graph = planned(random_plan, 2, seed=1)
    program = replace(program, workers=tuple(replace(worker, arena=None) for worker in program.workers))
    found = occupancy(program, graph, 1)
    assert set(found.held_bytes.tolist()) == {program.peak_bytes[1]}
    assert Purpose.GAPS not in found.by_purpose


def test_what_is_alike_stands_together_what_takes_most_first(
    random_plan: Callable[[Problem, int, int], Decision],
) -> None:
    program, graph = planned(random_plan, 2, seed=1)
    found = occupancy(program, graph, 0)
    groups = found.alike_at(found.fullest)
    assert sorted(one.buffer for group in groups for one in group) == sorted(
        one.buffer for one in found.at(found.fullest)
    )
    sizes = [len(group) * group[0].size_bytes for group in groups]
    assert sizes == sorted(sizes, reverse=True)
    assert max(map(len, groups)) > 1
    assert all(len({(one.purpose, one.op_type, one.size_bytes) for one in group}) == 1 for group in groups)


def test_of_workers_that_need_as_much_the_last_is_the_tightest() -> None:
    assert tightest((5, 5, 5), (6, 6, 6)) == (2, 6)
    assert limits_by_worker((5, 9, 7), (9, 8, 10)) == (8, 10, 9)
