"""Weights that lie in one matrix cost what they cost apart, and outside of the plan they lie in one matrix."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fast_suite import chosen
from packed import FORMS, step
from planner import api
from planner.errors import ExportError
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import write_model
from planner.runtime.values.safetensors import read_header
from planner.runtime.values.state import starting_values


def _step(form: str, *, is_packed: bool = True, layers: int = 1) -> Graph:
    return step(form, is_packed=is_packed, optimizer="momentum", has_bias=form != "experts", layers=layers)


def _written(file: Path, form: str, *, is_packed: bool = True, layers: int = 1) -> Path:
    write_model(_step(form, is_packed=is_packed, layers=layers), file)
    return file


@pytest.mark.parametrize(
    ("form", "workers"), chosen([(form, k) for form in FORMS for k in (2, 4)], [("Split", 2), ("Slice", 4)])
)
def test_packed_costs_what_apart_does(form: str, workers: int, tmp_path: Path) -> None:
    costs = {}
    for is_packed in (True, False):
        file = _written(tmp_path / f"{is_packed}.onnx", form, is_packed=is_packed)
        found = api.plan(file, gpus=workers, effort="quick", out=tmp_path / str(is_packed), models=False).plan
        costs[is_packed] = found.cost
    assert costs[True] <= 1.05 * costs[False], costs


@pytest.mark.parametrize("form", chosen(FORMS, ["Slice"]))
def test_it_runs_as_its_model_and_is_proven(plan_of: Callable[..., Any], form: str, tmp_path: Path) -> None:
    planned = plan_of(_written(tmp_path / "step.onnx", form), 3)
    plan = planned.result.plan
    assert "first.weight" in plan.in_parts
    found = api.run(planned.directory, steps=2, verify=True)
    assert found.verified
    assert found.moved_bytes == plan.moved_bytes
    assert api.prove(planned.directory).is_proven


@pytest.mark.slow
def test_files_know_the_whole_alone(plan_of: Callable[..., Any], tmp_path: Path) -> None:
    """Results, checkpoints and exported weights; a checkpoint of 4 workers is gone on from by 3, and by a plan in which
    the matrix is whole.
    """
    file = _written(tmp_path / "step.onnx", "Slice")
    graph = _step("Slice")
    four, three = plan_of(file, 4).directory, plan_of(file, 3).directory
    pinned = api.plan(file, gpus=3, pin={"first.weight": "S(0)"}, out=tmp_path / "pinned", models=True).directory
    data = starting_values(graph)
    batch = tmp_path / "batch.npz"
    np.savez(batch, x=data["x"], target=data["target"])
    api.run(four, steps=2, checkpoint_dir=tmp_path / "one", export=tmp_path / "w.safetensors", inputs=batch)
    api.run(four, steps=2, checkpoint_dir=tmp_path / "two", inputs=batch)
    states = {pair.current: graph.tensors[pair.current].shape for pair in graph.state}
    assert {name: one.shape for name, one in read_header(tmp_path / "w.safetensors").items()} == states
    right = api.run(four, steps=4, inputs=batch).results
    for directory, checkpoints in ((three, "one"), (pinned, "two")):
        again = api.run(directory, steps=4, checkpoint_dir=tmp_path / checkpoints, resume=True, inputs=batch)
        assert again.first_step == 3
        for pair in graph.state:
            made = again.results[pair.following]
            np.testing.assert_allclose(made, right[pair.following], rtol=1e-3, atol=1e-5)


def test_a_pinned_state_stays_whole(tmp_path: Path) -> None:
    file = _written(tmp_path / "step.onnx", "Split", layers=2)
    found = api.plan(file, gpus=2, pin={"first.weight": "S(1)"}, out=tmp_path / "plan", models=False).plan
    assert str(found.tilings["first.weight"]) == "S(1)/2"
    assert "first.weight" not in found.in_parts
    assert "second.weight" in found.in_parts


def test_whoever_asks_for_the_whole_is_told_of_its_parts(plan_of: Callable[..., Any], tmp_path: Path) -> None:
    directory = plan_of(_written(tmp_path / "step.onnx", "turned"), 2).directory
    found = api.explain(directory, subject="first.weight")
    assert [row.name for row in found.tensors] == [f"first.weight#{part}" for part in range(3)]
    assert {row.held_by for row in found.in_place if row.name == "first.weight"} == {row.name for row in found.tensors}


def test_a_plan_that_states_other_parts_does_not_fit(plan_of: Callable[..., Any], tmp_path: Path) -> None:
    directory = plan_of(_written(tmp_path / "step.onnx", "Split"), 2).directory
    plan = json.loads((directory / "plan.json").read_text())
    parts = {f"first.weight#{part}": [[0, 48 * part], [24, 48 * part + 48]] for part in range(3)}
    assert plan["in_parts"]["first.weight"] == parts
    other = {**parts, "first.weight#0": [[0, 0], [24, 47]]}
    program = {**plan, "in_parts": {**plan["in_parts"], "first.weight": other}}
    (tmp_path / "program.json").write_text(json.dumps(program))
    with pytest.raises(Exception, match="does not fit"):
        api.prove(
            model=directory / "model.onnx",
            parts=[directory / "worker0.onnx", directory / "worker1.onnx"],
            program=tmp_path / "program.json",
        )


def test_the_gate_counts_parts_for_their_whole(tmp_path: Path) -> None:
    file = _written(tmp_path / "step.onnx", "Split")
    api.check([file], gpus=2, baseline=tmp_path / "costs.json", update=True)
    assert api.check([file], gpus=2, baseline=tmp_path / "costs.json").is_passed


def test_an_exported_step_takes_and_gives_wholes(plan_of: Callable[..., Any], tmp_path: Path) -> None:
    """JAX gets parts of whole arrays; DTensor has no placement for some of each part."""
    planned = plan_of(_written(tmp_path / "step.onnx", "Split"), 2)
    found = api.export(planned.directory, jax=tmp_path / "step.py")
    assert found.moved_bytes == planned.result.plan.moved_bytes
    text = (tmp_path / "step.py").read_text()
    assert "'first.weight': {'first.weight#0': ((0, 0), (24, 48))" in text
    assert "state['first.weight'][2]" in text
    with pytest.raises(ExportError) as refused:
        api.export(planned.directory, placements=tmp_path / "placements.py")
    assert any("tensor first.weight:" in fact for fact in refused.value.facts)
    data = api.plan(tmp_path / "step.onnx", gpus=2, strategy="data", out=tmp_path / "data", models=False).directory
    api.export(data, placements=tmp_path / "placements.py")
    assert "'first.weight': (Replicate(),),  # [24, 144], state" in (tmp_path / "placements.py").read_text()
