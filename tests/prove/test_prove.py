"""What a partitioned program computes is what its model computes, shown without running it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from click.testing import CliRunner

from planner import api
from planner.artifacts.program import Fetch
from planner.commands.main import main, tofu
from planner.graph.to_onnx import write_model
from planner.zoo import mlp
from prove_mutants import KINDS, Case, changes_a_value, mutants

HALO = """<ir_version: 10, opset_import: ["": 21]>
net (float[2,4,8,8] x, float[4,4,3,3] w, float[4] b, float[256,6] v) => (float[2,6] y, float[4] m) {
  axes = Constant <value = int64[3] {0, 2, 3}> ()
  h = Conv <pads = [1, 1, 1, 1]> (x, w, b)
  r = Relu(h)
  m = ReduceMean <keepdims = 0> (r, axes)
  f = Flatten(r)
  y = MatMul(f, v)
}"""
"""A convolution with a halo where it is cut along its height, a mean, and a product whose sum is split."""


@pytest.fixture(scope="module")
def halo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its plan on 3 workers, cut along the height."""
    folder = tmp_path_factory.mktemp("halo")
    onnx.save(onnx.parser.parse_model(HALO), folder / "net.onnx")
    pins = {"x": "S(2)", "r": "S(2)", "w": "R"}
    return api.plan(folder / "net.onnx", gpus=3, effort="quick", pin=pins, out=folder / "plan").directory


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training step's plan on 4 workers."""
    folder = tmp_path_factory.mktemp("step")
    write_model(mlp(3, 16, 12), folder / "mlp.onnx")
    return api.plan(folder / "mlp.onnx", gpus=4, effort="quick", out=folder / "plan").directory


@pytest.mark.parametrize("name", ["halo", "step"])
def test_a_plan_is_proven(name: str, request: pytest.FixtureRequest) -> None:
    proof = api.prove(request.getfixturevalue(name))
    assert proof.is_proven, proof.fault
    assert proof.fetches
    assert proof.buffers > proof.functions > 0


@pytest.mark.parametrize("name", ["halo", "step"])
def test_a_mutant_that_changes_a_value_is_never_called_equal(name: str, request: pytest.FixtureRequest) -> None:
    """What is called equal is executed, and gives what the model gives."""
    case = Case.of(request.getfixturevalue(name))
    drawn = mutants(case, np.random.default_rng(1))
    kinds = set()
    for _ in range(len(KINDS)):
        kind, mutant = next(drawn)
        proof = case.proof(mutant)
        if proof is None or not proof.is_proven:
            kinds.add(kind)
        else:
            assert not changes_a_value(case, mutant), kind
    assert len(kinds) > len(KINDS) // 2


def test_a_contribution_that_is_left_out_is_named(step: Path) -> None:
    case = Case.of(step)
    worker = next(one for one in case.loaded.program.workers if any(map(_joins, one.steps)))
    joining = next(one for one in worker.steps if _joins(one))
    assert isinstance(joining, Fetch)
    pieces = tuple(replace(piece, sources=piece.sources[1:]) for piece in joining.pieces)
    taken = sum(
        piece.region.elements * 4 for piece in pieces for source in piece.sources if source.worker != worker.worker
    )
    new = replace(joining, pieces=pieces, predicted_bytes=taken)
    steps = tuple(new if one is joining else one for one in worker.steps)
    changed = replace(worker, steps=steps)
    workers = tuple(changed if one is worker else one for one in case.loaded.program.workers)
    proof = case.proof(replace(case.loaded, program=replace(case.loaded.program, workers=workers)))
    assert proof is not None
    assert proof.fault is not None
    assert proof.fault.is_counterexample


def _joins(step: object) -> bool:
    return isinstance(step, Fetch) and step.reducer is not None


def test_the_command_says_yes_by_its_exit_code(step: Path) -> None:
    told = CliRunner().invoke(tofu, ["prove", str(step), "--json"], standalone_mode=False)
    assert told.return_value == 0
    assert json.loads(told.stdout)["is_proven"] is True


def test_a_missing_worker_file_is_no_question_of_proof(step: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    folder.mkdir()
    for file in step.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "worker3.onnx").unlink()
    assert main(["prove", str(folder)]) == 2
