"""Five networks on 1 to 8 workers: every step right, every byte predicted, the same bits again, killed or not.

Fewer steps than ``tests/tools/fifty_steps.py``, which does the same at length.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fifty_steps
import five_models
from fast_suite import by_night
from planner import api
from planner.artifacts.program import Fetch
from planner.runtime.plan_files import load_plan

STEPS = 5


@pytest.mark.parametrize(
    ("name", "workers"),
    by_night(five_models.WRITERS, five_models.WORKERS, one_of=3, night=[("resnet50", 1), ("resnet50", 4), ("lstm", 8)]),
)
def test_steps_judged_alone_and_repeated(name: str, workers: int, tmp_path: Path) -> None:
    found = fifty_steps.trial(five_models.planned(name, workers, tmp_path), STEPS)
    assert found.judged.verified, found.judged.difference()
    assert len(found.judged.comparisons) == STEPS
    assert all(tensor.has_reference for tensor in found.judged.comparisons[0].tensors)
    assert found.are_bytes_equal
    assert (found.judged.moved_bytes > 0) == (workers > 1)
    assert found.is_repeated, "two runs differ"
    assert found.is_resumed, f"the run that was killed after step {found.killed_after} differs"


@pytest.mark.parametrize("workers", [2, 3])
def test_every_kind_of_border_has_a_halo(workers: int, tmp_path: Path) -> None:
    """What is put on trial: each convolution that is cut along height or width takes rows or columns of a neighbour."""
    plan = load_plan(five_models.planned("cnn-spatial", workers, tmp_path))
    convolutions = [op for op in plan.graph.ops if op.op_type == "Conv" and f"{op.name}.y" in op.outputs]
    assert len(convolutions) == 5
    for op in convolutions:
        image = op.inputs[0]
        halos = [
            {source.worker == worker.worker for piece in step.pieces for source in piece.sources}
            for worker in plan.program.workers
            for step in worker.steps
            if isinstance(step, Fetch) and step.target == f"{image}@{op.name}.0"
        ]
        assert {True, False} in halos, f"no worker joins its part of {image} with a neighbour's for {op.name}"


def test_the_comparison_of_two_runs_sees_one_bit(tmp_path: Path) -> None:
    run = api.run(five_models.planned("cnn-spatial", 2, tmp_path), steps=2)
    name = next(iter(run.results))
    other = {**run.results, name: np.nextafter(run.results[name], np.float32(np.inf))}
    assert fifty_steps.same_bits(run, run)
    assert not fifty_steps.same_bits(run, replace(run, results=other))
    assert not fifty_steps.same_bits(run, replace(run, losses=(run.losses[0], run.losses[1] + 1e-6)))
    assert fifty_steps.same_bits(run, replace(run, losses=run.losses[1:], first_step=2))
