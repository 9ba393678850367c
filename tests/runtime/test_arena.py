"""One arena per worker: the same bits as with memory of its own for every buffer, however slow somebody is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from planner.artifacts.program import Fetch
from planner.artifacts.waits import needs
from planner.features.zoo.models import mlp
from planner.runtime.engine.core.interface import InProcessEngine
from planner.runtime.engine.core.transport import BoundFetch, NumpyTransport
from run_plan import run_plan

Planner = Callable[..., Any]


class Slow(NumpyTransport):
    """Some workers take their time over fetches, so that a missing wait shows."""

    def __init__(self, slow: int) -> None:
        self._slow = slow

    def bind(self, fetch: Fetch, worker: int, locate: Any) -> BoundFetch:
        bound = super().bind(fetch, worker, locate)
        delay = 0.004 if worker % 3 == self._slow else 0.0

        class Later(BoundFetch):
            def run(self) -> int:
                time.sleep(delay)
                return bound.run()

        return Later()


@pytest.mark.parametrize("workers", [2, 3, 4, 8])
def test_reuse_changes_no_bit(plan_of: Planner, workers: int) -> None:
    graph = mlp(3, 24, 36)
    values = {name: np.random.default_rng(7).standard_normal((36, 24)).astype(np.float32) for name in ("x0",)}
    plain = run_plan(plan_of(graph, workers, arenas=False), steps=3, inputs=values)
    for slow in range(3):
        found = run_plan(plan_of(graph, workers), steps=3, inputs=values, transport=Slow(slow))
        assert {name: array.tobytes() for name, array in found.results.items()} == {
            name: array.tobytes() for name, array in plain.results.items()
        }


def test_memory_is_reused_across_workers_and_waited_for(plan_of: Planner) -> None:
    """The test above would prove little if no buffer that another worker reads were ever written over."""
    plan = plan_of(mlp(3, 24, 36), 4)
    shared = 0
    for program in plan.program.workers:
        assert program.arena is not None
        read = {
            source.buffer
            for other in plan.program.workers
            for step in other.steps
            if isinstance(step, Fetch)
            for source in needs(other, step)
            if source.worker == program.worker != other.worker
        }
        for name in read:
            start = program.arena.offsets[name]
            shared += sum(
                start == offset
                for other, offset in program.arena.offsets.items()
                if other not in (name, f"{name}.next")
            )
    assert shared > 0


def test_all_arrays_lie_in_the_arenas_of_the_plan(plan_of: Planner) -> None:
    plan = plan_of(mlp(3, 24, 36), 4)
    with InProcessEngine(plan.models, plan.program.state) as engine:
        assert isinstance(engine, InProcessEngine)
        for program in plan.program.workers:
            arrays = [engine.array(program.worker, name) for name in program.buffers]
            first = min(array.ctypes.data for array in arrays)
            last = max(array.ctypes.data + array.nbytes for array in arrays)
            assert program.arena is not None
            assert last - first <= program.arena.size_bytes == program.arena_bytes
            for array in arrays:
                assert array.ctypes.data % 64 == 0
