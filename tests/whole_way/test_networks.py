"""Whole networks of every door planned for 2 and 4 workers, run and verified.

ResNet-50 stands in ``test_plan_and_run``; small networks of every door in ``tests/training/doors/test_planned``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import architectures
from fast_suite import by_night
from planner import api
from planner.graph.files.to_onnx import write_model

MODELS = Path(__file__).parents[1] / "models"


def check(planned: Any, steps: int) -> None:
    result = api.run(planned.directory, steps=steps, verify=True)
    assert result.verified, result.difference()
    assert result.moved_bytes == result.predicted_bytes > 0


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 4])
def test_bert(plan_of: Callable[..., Any], workers: int, tmp_path: Path) -> None:
    train = tmp_path / "bert.train.onnx"
    api.grad(MODELS / "bert.raw.onnx", loss="softmax_cross_entropy", optimizer="adam", lr=0.001, batch=8, output=train)
    check(plan_of(train, workers), 3)


@pytest.mark.slow
def test_resnet50_with_adam(plan_of: Callable[..., Any], tmp_path: Path) -> None:
    """Its first step turns a gradient that is all rounding into a whole one: one run is no measure of that."""
    train = tmp_path / "resnet50.train.onnx"
    api.grad(
        MODELS / "resnet50.raw.onnx", loss="softmax_cross_entropy", optimizer="adam", lr=0.001, batch=8, output=train
    )
    check(plan_of(train, 4), 3)


@pytest.mark.parametrize(("name", "workers"), by_night(architectures.NAMES, [2, 4], one_of=2))
def test_architectures_of_the_onnx_package(
    plan_of: Callable[..., Any], name: str, workers: int, tmp_path: Path
) -> None:
    """At their batch; weights without values, which the run makes up tile by tile: VGG-19 would be a file of 575 MB."""
    train = tmp_path / f"{name}.onnx"
    write_model(architectures.step_of(name, has_weights=False), train)
    check(plan_of(train, workers), 1)
