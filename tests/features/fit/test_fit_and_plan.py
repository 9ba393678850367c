"""What `tofu fit` says fits, `tofu plan --memory` plans; and what it says does not, that plans neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner import api
from planner.errors import InfeasibleError
from planner.features.zoo.models import build
from planner.features.zoo.models.transformer import GptShape, gpt
from planner.graph.files.to_onnx import write_model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "memory", "workers", "again"),
    [
        ("mlp-2x40", "30KiB", 4, "none"),
        ("mlp-2x40", "45KiB", 2, "none"),
        pytest.param("deep", "800KiB", 2, "auto", marks=pytest.mark.nightly),
    ],
)
def test_the_least_that_hold_a_model_are_the_least_for_which_it_is_planned(
    name: str, memory: str, workers: int, again: str, tmp_path: Path
) -> None:
    graph = gpt("g", GptShape(2, 16, 2, 64), batch=8) if name == "deep" else build(name, batch=64)
    model = tmp_path / "model.onnx"
    write_model(graph, model)
    counts = [workers // 2, workers]
    answer = api.fit(model, memory=memory, gpus=counts).answers[0]
    assert answer.workers == workers
    assert [(row.fits, row.recompute) for row in answer.rows] == [(False, None), (True, again)]
    with pytest.raises(InfeasibleError):
        api.plan(model, gpus=counts[0], memory=memory, out=tmp_path / "fewer", models=False)
    plan = api.plan(model, gpus=workers, memory=memory, out=tmp_path / "plan", models=False).plan
    assert (plan.recomputed is not None) == (again == "auto")
    assert answer.rows[1].at_least_bytes <= max(plan.peak_bytes) <= answer.memory_bytes
