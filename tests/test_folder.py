"""The folder of a plan: what is read in it, what is refused, and what may be replaced."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command_line import model_file, tofu
from planner import api
from planner.artifacts.plan_folder import open_folder, try_place
from planner.errors import ModelError, UsageError


@pytest.fixture
def planned(tmp_path: Path) -> Path:
    """A small plan's folder."""
    api.plan(model_file(tmp_path, "x"), gpus=2, out=tmp_path / "plan")
    return tmp_path / "plan"


def edited(folder: Path, name: str, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edits a JSON file of a plan, and mends its digest."""
    data = json.loads((folder / name).read_text())
    edit(data)
    (folder / name).write_text(json.dumps(data))
    mended(folder, name)


def mended(folder: Path, name: str) -> None:
    if name != "manifest.json":
        digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        edited(folder, "manifest.json", lambda manifest: manifest["files"].update({name: digest}))


@pytest.mark.parametrize(
    ("name", "edit", "said"),
    [
        ("manifest.json", lambda data: data.pop("files"), "it lacks 'files'"),
        ("manifest.json", lambda data: data.update(schema_version=7), "schema_version is 7; this tofu reads 1"),
        ("manifest.json", lambda data: data.update(state=[["x"]]), "state[0] is no pair of a state and its next value"),
        ("manifest.json", lambda data: data.update(inputs="x"), 'inputs is a text ("x"), not a list'),
        ("plan.json", lambda data: data.pop("cuts"), "it lacks 'cuts'"),
        ("plan.json", lambda data: data.update(cuts=[0]), "cuts[0] is a number (0), not a whole number of at least 1"),
        ("plan.json", lambda data: data["tilings"].update(x="S(0)/3"), "tilings.x is wrong: tiling 'S(0)/3' does not"),
        ("plan.json", lambda data: data["tilings"].update(x=3), "tilings.x is a number (3), not a text"),
        ("plan.json", lambda data: data.update(peak_bytes=None), "peak_bytes is null, not a list"),
        ("plan.json", lambda data: data.update(tilings=[]), "tilings is a list, not an object"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_place(
    name: str, edit: Callable[[dict[str, Any]], object], said: str, planned: Path
) -> None:
    edited(planned, name, edit)
    with pytest.raises(ModelError) as caught:
        open_folder(planned)
    assert f"{planned / name} cannot be read: " in caught.value.what
    assert said in caught.value.what


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("manifest.json", b'{"a": 1,\n "b" 2}', "it is no JSON: line 2, character 6: a colon is missing after a key"),
        ("manifest.json", b"", "it is empty"),
        ("plan.json", b"\xff", "byte 0 is not UTF-8"),
        ("plan.json", b"[" * 50_000, "it is nested too deeply"),
    ],
)
def test_what_is_no_json_is_said_with_its_line(name: str, content: bytes, said: str, planned: Path) -> None:
    (planned / name).write_bytes(content)
    mended(planned, name)
    with pytest.raises(ModelError) as caught:
        open_folder(planned)
    assert caught.value.what == f"{planned / name} cannot be read: {said}"


def test_a_plan_for_other_workers_than_are_there(planned: Path) -> None:
    """So many that their names alone would fill the memory."""
    edited(
        planned,
        "plan.json",
        lambda data: data.update(workers=10**12, cuts=[10**12], tilings={}, strategies={}, iteration_spaces={}),
    )
    with pytest.raises(ModelError, match="the plan is for 1000000000000 workers, and not these are there"):
        open_folder(planned)


def test_a_plan_is_replaced_on_demand(planned: Path) -> None:
    model = planned.parent / "model.onnx"
    with pytest.raises(UsageError, match="exists") as caught:
        api.plan(model, gpus=3, out=planned)
    assert "--force" in caught.value.hint
    (planned / "worker1.onnx").unlink()  # one that is damaged may be replaced
    assert tofu("plan", str(model), "--gpus", "3", "-o", str(planned), "--force").returncode == 0
    assert open_folder(planned).plan.workers == 3
    assert sorted(entry.name for entry in planned.parent.iterdir()) == ["model.onnx", "plan"]


def test_what_is_no_plan_is_never_replaced(planned: Path, tmp_path: Path) -> None:
    (planned / "checkpoints").mkdir()
    with pytest.raises(UsageError, match="holds more than a plan, and is not replaced") as caught:
        try_place(planned, force=True)
    assert caught.value.facts == ("checkpoints",)
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to(planned)
    for other in (tmp_path / "mine", tmp_path / "model.onnx", tmp_path / "link"):
        with pytest.raises(UsageError, match="is no plan's folder, and is not replaced"):
            try_place(other, force=True)


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc").is_dir(), reason="needs a place where nobody can write")
def test_the_place_is_tried_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        api.plan(tmp_path / "none.onnx", gpus=2, out=Path("/proc/plan"))
    with pytest.raises(UsageError, match="cannot be written"):
        api.grad(tmp_path / "none.onnx", loss="mse", optimizer="sgd", output=tmp_path)
    with pytest.raises(UsageError, match="cannot be written"):
        api.zoo("alexnet", output=tmp_path)
    with pytest.raises(UsageError, match="cannot be written"):
        api.run(tmp_path, result=tmp_path)
    with pytest.raises(UsageError, match="cannot be written"):
        api.run(tmp_path, export=tmp_path / "no" / "w.safetensors")
    with pytest.raises(UsageError, match=r"results are written as npz"):
        api.run(tmp_path, result=tmp_path / "out.csv")


def test_a_plan_that_was_measured_is_replaced_with_what_was_measured(planned: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    api.run(planned, profile=True, notice=notes.append)
    kept = planned / "measured.json"
    assert kept.is_file()
    assert notes[-1] == f"note: what was measured is kept in {kept}, for `tofu report`"
    kept.unlink()
    kept.mkdir()
    assert api.run(planned, profile=True, notice=notes.append).profile is not None, "the run is done all the same"
    assert notes[-1].startswith(f"note: what was measured is not kept: {kept} cannot be written")
    kept.rmdir()
    kept.write_text("{}")
    api.plan(tmp_path / "model.onnx", gpus=2, out=planned, force=True)
    assert not kept.exists()
