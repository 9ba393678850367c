"""Workers that share no memory: the same bits as workers that do, however late and in whatever order arrays arrive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fake_channel import AbortedError, PostOffice
from planner.artifacts.program import Fetch
from planner.features.zoo.models import build, mlp
from planner.runtime.engine.mpi import message_peers
from planner.runtime.engine.mpi.message_engine import MessageEngine
from planner.runtime.engine.mpi.message_peers import MessagePeers
from planner.runtime.plan_files import LoadedPlan
from thread_ranks import alone, apart, together

Planner = Callable[..., LoadedPlan]


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_late_and_overtaking_arrays_give_the_same_bits(plan_of: Planner, workers: int) -> None:
    plan = plan_of(mlp(3, 24, 36, learning_rate=0.001), workers)
    right = alone(plan)
    for seed in range(5):
        print("seed", seed)
        assert apart(plan, seed) == right


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "workers"), [("lenet-5", 4), pytest.param("lenet-5", 8, marks=pytest.mark.nightly), ("rnn-1-1k", 3)]
)
def test_late_and_overtaking_arrays_of_larger_models_give_the_same_bits(
    plan_of: Planner, name: str, workers: int
) -> None:
    plan = plan_of(build(name, batch=8), workers)
    right = alone(plan)
    for seed in range(3):
        print("seed", seed)
        assert apart(plan, seed) == right


def test_workers_may_be_on_other_ranks(plan_of: Planner) -> None:
    plan = plan_of(mlp(3, 24, 36, learning_rate=0.001), 3)
    assert apart(plan, 1, ranks=(2, 0, 1)) == alone(plan)


def test_a_rank_has_the_memory_of_its_worker_alone(plan_of: Planner) -> None:
    plan = plan_of(mlp(3, 24, 36, learning_rate=0.001), 3)

    def look(engine: MessageEngine) -> Any:
        (mine,) = engine.local_programs
        for program in plan.program.workers:
            for name in (*program.loaded, *program.collected):
                if program is mine:
                    assert engine.array(program.worker, name).nbytes == program.buffers[name].size_bytes
                else:
                    with pytest.raises(KeyError):
                        engine.array(program.worker, name)
        return engine.arena_bytes, engine.staging_bytes

    arena_bytes, staging_bytes = together(plan, PostOffice(3), look)[0]
    assert arena_bytes == tuple(program.arena_bytes for program in plan.program.workers)
    for program, staging in zip(plan.program.workers, staging_bytes, strict=True):
        received = sum(step.predicted_bytes for step in program.steps if isinstance(step, Fetch))
        assert received <= staging <= sum(arena_bytes)


def test_tags_may_run_out(plan_of: Planner) -> None:
    plan = plan_of(mlp(3, 24, 36, learning_rate=0.001), 4)
    assert apart(plan, 1, highest_tag=message_peers.FIRST_TAG + 1) == alone(plan)


def test_memory_that_is_used_again_too_early_gives_other_bits(
    plan_of: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the wait for sends is for: without it a box may arrive with what a later step wrote in its place."""
    plan = plan_of(mlp(3, 24, 36, learning_rate=0.001), 4)
    right = alone(plan)
    monkeypatch.setattr(MessagePeers, "_wait_for_sends", lambda self, other, count: None)

    def is_right(seed: int) -> bool:
        try:
            return apart(plan, seed) == right
        except AbortedError:  # workers that hold the same elements differ
            return False

    assert not all(map(is_right, range(10)))
