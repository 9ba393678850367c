"""Plans of large graphs, of which programs are made late: the one that is kept is held to its program."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from planner.features.zoo.models import mlp
from planner.graph.files.to_onnx import write_model
from planner.options import ReadOptions
from planner.options.planning import PlanOptions
from planner.planning.limit import trial
from planner.planning.machines import target_of
from planner.planning.request import PlanRequest, source_of
from planner.planning.session import Session
from planner.planning.thresholds import Work


def test_a_large_plan_is_held_to_its_program_where_little_lies_there_on_average(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(mlp(2, 64, 48), tmp_path / "m.onnx")
    source = source_of(tmp_path / "m.onnx", ReadOptions())

    options = PlanOptions(model=source.model, effort="quick", recompute="none")

    def peak(limit: int | None) -> int:
        limits = None if limit is None else (limit, limit)
        found = Session(PlanRequest(options, source, target_of(2, None), limits)).planned().trial
        return max(found.partitioned.program.peak_bytes)

    limit = peak(None) - 1
    monkeypatch.setattr(Work.TRIALS, "most_ops", 1)
    monkeypatch.setattr(trial, "_AMPLE", Fraction(2))  # as if all that lies there on average were little
    assert peak(limit) <= limit
