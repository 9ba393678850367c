"""Small copies of networks of real size, as PyTorch exports them: taken by ``grad``, planned, verified.

``tests/tools/real_size_copies.py`` writes them: two layers of each, without weights.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fast_suite import chosen
from planner import api
from planner.graph.reading.from_onnx import read_model
from planner.results import GradResult

FOLDER = Path(__file__).parents[1] / "models" / "real_sizes"
COPIES = {
    # By name: the loss, what is no parameter, and the labels or the target.
    "llama": ("softmax_cross_entropy", ["network.model.rotary_emb.inv_freq"], (4, 8)),
    "moe": ("softmax_cross_entropy", ["network.model.rotary_emb.inv_freq"], (4, 8)),
    "mamba2": ("softmax_cross_entropy", [], (4, 8)),
    "whisper": ("softmax_cross_entropy", [], (4, 8)),
    "dit": ("mse", [], (4, 4, 8, 8)),
    "unet": ("mse", ["val_339"], (4, 4, 8, 8)),
}

BY_NIGHT = ("unet", "whisper")
"""Planned and run at night: the longest."""


def grown(name: str, output: Path) -> GradResult:
    return api.grad(FOLDER / f"{name}.onnx", loss=COPIES[name][0], optimizer="adamw", lr=1e-3, output=output)


def test_every_file_is_looked_at() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(COPIES)


@pytest.mark.parametrize("name", chosen(COPIES, fast=set(COPIES) - {"unet"}))
def test_all_parameters_are_trained_by_the_right_loss(name: str, tmp_path: Path) -> None:
    loss, fixed, shape = COPIES[name]
    result = grown(name, tmp_path / "train.onnx")
    assert [row.name for row in result.parameters if row.verdict != "trained"] == fixed
    weights = [row for row in result.parameters if row.verdict == "trained"]
    forward = read_model(FOLDER / f"{name}.onnx")
    untrained = {name for name, value in forward.constants.items() if value is None} - {row.name for row in weights}
    assert untrained <= set(fixed), "every weight of the file is trained"
    labels = {row.name: row for row in result.data}["target" if loss == "mse" else "labels"]
    assert labels.shape == shape, "classes are the last dim of a language model's logits"
    assert result.warnings == ()


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.nightly if name in BY_NIGHT else pytest.mark.slow) for name in COPIES],
)
def test_plans_on_two_workers_are_verified(name: str, tmp_path: Path) -> None:
    grown(name, tmp_path / "train.onnx")
    api.plan(tmp_path / "train.onnx", gpus=2, effort="quick", out=tmp_path / "plan")
    result = api.run(tmp_path / "plan", steps=1, verify=True, random_weights=True)
    assert result.verified
    assert result.predicted_bytes == result.moved_bytes
