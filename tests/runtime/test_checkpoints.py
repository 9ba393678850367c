"""What a folder of checkpoints holds, and its weights without a plan and without a step."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner import api
from planner.errors import ModelError, UsageError
from planner.options.running import RunOptions
from planner.runtime.run import run_with


@pytest.fixture
def folder(training: Any, tmp_path: Path) -> Path:
    """Checkpoints of three steps."""
    run_with(training.plan, RunOptions(steps=3, checkpoint_dir=tmp_path / "ck", checkpoint_every=1, seed=4))
    return tmp_path / "ck"


def spoilt(folder: Path, number: int) -> None:
    file = next((folder / f"step-0000000{number}").glob("worker*.npz"))
    file.write_bytes(file.read_bytes()[:-1] + b"?")


def test_the_weights_of_a_checkpoint_are_those_of_the_run(training: Any, folder: Path, tmp_path: Path) -> None:
    for number in (1, 3):
        straight = run_with(training.plan, RunOptions(steps=number, seed=4))
        found = api.export_checkpoint(folder, tmp_path / "w.npz", number=number)
        assert (found.number, found.names, found.passed_over) == (number, ("W",), ())
        with np.load(tmp_path / "w.npz") as arrays:
            assert arrays["W"].tobytes() == straight.results["W_next"].tobytes()
            assert arrays["W"].shape == (3, 2)
    assert api.export_checkpoint(folder, tmp_path / "w.npz").number == 3
    assert api.export_checkpoint(folder / "step-00000002", tmp_path / "w.npz").number == 2
    ran = run_with(training.plan, RunOptions(steps=3, seed=4, export=tmp_path / "run.safetensors"))
    assert ran.exported == ("W",)
    api.export_checkpoint(folder, tmp_path / "w.safetensors")
    assert (tmp_path / "w.safetensors").read_bytes() == (tmp_path / "run.safetensors").read_bytes()


def test_damage_is_shown_and_passed_over(folder: Path, tmp_path: Path) -> None:
    spoilt(folder, 3)
    listed = api.checkpoints(folder)
    rows = listed.rows
    assert [(row.number, row.checkpoint is not None) for row in rows] == [(1, True), (2, True), (3, False)]
    assert "its digest differs" in rows[2].problem
    text = io.StringIO()
    api.show(listed, text)
    assert "digest differs" in text.getvalue().replace("\n", " ")
    found = api.export_checkpoint(folder, tmp_path / "w.npz")
    assert found.number == 2
    assert len(found.passed_over) == 1
    with pytest.raises(ModelError, match="holds no checkpoint that is whole"):
        api.export_checkpoint(folder, tmp_path / "w.npz", number=3)


def test_a_file_with_the_name_of_a_checkpoint_is_none(folder: Path, tmp_path: Path) -> None:
    (folder / "step-00000009").write_bytes(b"")
    rows = api.checkpoints(folder).rows
    assert [(row.number, row.checkpoint is not None) for row in rows] == [(1, True), (2, True), (3, True), (9, False)]
    assert api.export_checkpoint(folder, tmp_path / "w.npz").number == 3


def test_what_is_not_there_is_said(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no checkpoints"):
        api.checkpoints(tmp_path / "nothing")
    with pytest.raises(UsageError, match="no checkpoint of step 7") as caught:
        api.export_checkpoint(folder, tmp_path / "w.npz", number=7)
    assert caught.value.facts == ("there are: 1, 2, 3",)
    with pytest.raises(UsageError, match="neither"):
        api.export_checkpoint(folder, tmp_path / "w.txt")


def test_a_manifest_that_does_not_describe_its_states(training: Any, folder: Path, tmp_path: Path) -> None:
    """An earlier tofu's is gone on from, by whoever knows the model; a wrong one is damaged."""
    wrong = {2: {"W": {"dtype": "float33", "shape": [3, 2]}}, 1: {"W": {"dtype": "float64", "shape": [3, 2]}}}
    for number in (1, 2, 3):
        file = folder / f"step-0000000{number}" / "manifest.json"
        manifest = json.loads(file.read_text())
        del manifest["tensors"], manifest["digest"]
        if number in wrong:
            manifest["tensors"] = wrong[number]
        file.write_text(json.dumps(manifest))
    assert [
        row.problem.partition("; ")[0].rpartition("step-0000000")[2] for row in api.checkpoints(folder).rows[1:]
    ] == [
        "2 is no checkpoint that can be read: tensors.W.dtype is 'float33', and no type",
        "3 does not say of what types and shapes its states are: an earlier tofu wrote it",
    ]
    with pytest.raises(ModelError, match="does not hold the tiles"):
        api.export_checkpoint(folder, tmp_path / "w.npz", number=1)
    again = run_with(training.plan, RunOptions(steps=4, checkpoint_dir=folder, resume=True))
    assert again.first_step == 4
