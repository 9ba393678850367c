"""Segments are as long as memory lets them: held against one op in each, and against as few as there can be."""

from collections.abc import Callable

import numpy as np
import pytest

from fast_suite import spread
from planner import opdefs
from planner.artifacts.in_place import overwriting
from planner.artifacts.program import Segment
from planner.artifacts.waits import last_reads, levels
from planner.features.zoo.models import mlp
from planner.features.zoo.models.convolutional import cnn
from planner.features.zoo.models.recurrent import rnn
from planner.features.zoo.models.transformer import GptShape, gpt
from planner.graph.core.model import Graph
from planner.partition import breaks
from planner.partition.build import partition
from planner.partition.memory import in_place, live_spans
from planner.partition.packing import least_bytes
from planner.partition.segments import Partitioned
from planner.search.decision import Decision
from planner.search.model.problem import Problem

GRAPHS: dict[str, Callable[[], Graph]] = {
    "mlp": lambda: mlp(4, 64, 32),
    "cnn": lambda: cnn(3, 8, 12, batch=4),
    "rnn": lambda: rnn(2, 16, batch=8, steps=2),
    "gpt": lambda: gpt("gpt", GptShape(1, 32, 4, 16), batch=4),
}


def needed_bytes(found: Partitioned) -> list[int]:
    """By worker, what is needed at once: buffers, and the tensors inside of a segment."""
    program = found.program
    level = levels(program.workers)
    reads = last_reads(program.workers, level)
    totals = []
    for worker in program.workers:
        spans = live_spans(worker, level, reads)
        for name in in_place(worker, program.state, overwriting(found.bodies), level, reads):
            del spans[name]
        totals.append(least_bytes(list(spans.values())) + worker.workspace_bytes)
    return totals


def segments(found: Partitioned) -> int:
    return sum(isinstance(step, Segment) for worker in found.program.workers for step in worker.steps)


@pytest.mark.parametrize(("name", "workers"), spread(GRAPHS, [1, 2, 3], one_of=3))
def test_little_more_is_needed_than_with_each_op_alone(
    name: str, workers: int, random_plan: Callable[[Problem, int, int], Decision], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = GRAPHS[name]()
    ops = opdefs.standard().bind_all(graph)
    plan = random_plan(Problem(graph, ops, workers), workers, 7)
    found = partition(graph, ops, plan)
    with monkeypatch.context() as patch:
        patch.setattr(breaks._Limit, "allows", lambda *_: False)
        alone = partition(graph, ops, plan)
    with monkeypatch.context() as patch:
        patch.setattr(breaks._Limit, "allows", lambda *_: True)
        joined = partition(graph, ops, plan)
    assert segments(joined) <= segments(found) < segments(alone)
    for mine, least, most in zip(needed_bytes(found), needed_bytes(alone), needed_bytes(joined), strict=True):
        # On several workers, memory that others read is free a step later in a long segment.
        assert mine <= (1.05 if workers == 1 else 1.15) * least
        assert mine <= 1.05 * most


def test_one_worker_needs_less_than_in_one_segment(
    random_plan: Callable[[Problem, int, int], Decision], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = mlp(4, 64, 128)
    ops = opdefs.standard().bind_all(graph)
    plan = random_plan(Problem(graph, ops, 1), 1, 0)
    (found,) = needed_bytes(partition(graph, ops, plan))
    monkeypatch.setattr(breaks._Limit, "allows", lambda *_: True)
    whole = partition(graph, ops, plan)
    assert segments(whole) == 1
    assert found < 0.9 * needed_bytes(whole)[0]


def test_an_update_does_not_share_a_segment_with_other_readers_of_its_state(
    random_plan: Callable[[Problem, int, int], Decision],
) -> None:
    graph = mlp(4, 64, 32)
    ops = opdefs.standard().bind_all(graph)
    found = partition(graph, ops, random_plan(Problem(graph, ops, 1), 1, 0))
    arena = found.program.workers[0].arena
    assert arena is not None
    assert graph.state
    assert all(arena.offsets[pair.following] == arena.offsets[pair.current] for pair in graph.state)


def test_a_limit_counts_what_is_outside_and_inside_of_a_segment() -> None:
    # Ops 0 to 3 make a (100 bytes, until 1), b (100, until 2), c (100, until 3) and d (100, to the end).
    holding = breaks._Holding(
        filled=np.array([1, 3, 5, 7]),
        until=np.array([3, 5, 7, 9]),
        sizes=np.array([100, 100, 100, 100]),
        behind=np.full(4, -1),
        resident_bytes=3000,
    )
    limit = breaks._Limit(holding)
    # At each op two tensors are there, 200 bytes, and 3200 / 32 may lie inside.
    assert [limit.allows(number, number) for number in range(4)] == [True] * 4
    assert limit.allows(0, 1)  # b leaves it, a is inside
    assert not limit.allows(0, 2)  # a and b are inside at the same time
    holding.behind[1] = 0
    assert not breaks._Limit(holding).allows(0, 1)
    assert breaks._Limit(holding).allows(1, 1)
