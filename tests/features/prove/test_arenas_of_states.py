"""A next state that somebody lays over a state which its own segment reads: refused by a run, and not proven."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from edited_plans import mend
from planner import api
from planner.artifacts.worker_model import WorkerModels
from planner.errors import ModelError
from prove_mutants import CELL_STATES, CELLS, KINDS, Case, paired


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a plan of the cells on 1 worker."""
    folder = tmp_path_factory.mktemp("cells")
    onnx.save(onnx.parser.parse_model(CELLS), folder / "cells.onnx")
    pairs = paired(folder / "pairs.yaml", CELL_STATES)
    return api.plan(folder / "cells.onnx", gpus=1, state=pairs, out=folder / "plan").directory


def test_a_plan_of_cells_is_proven(planned: Path) -> None:
    proof = api.prove(planned)
    assert proof.is_proven, proof.fault


def test_an_arena_of_a_state_that_is_no_elementwise_update_is_refused(planned: Path, tmp_path: Path) -> None:
    plan = Path(shutil.copytree(planned, tmp_path / "plan"))
    case = Case.of(plan)
    mutant = KINDS["arena of a state that is no element-wise update"](case.loaded, np.random.default_rng(0))
    assert mutant is not None
    assert case.proof(mutant) is None
    (one,) = mutant.models
    written = WorkerModels(one.bodies, opset=21, plan_digest=one.plan_digest).write(one.program, one.constants)
    onnx.save(written, plan / "worker0.onnx")
    mend(plan, mends_plan=False)
    proof = api.prove(plan)
    assert not proof.is_proven
    assert proof.fault is not None
    assert "while it reads that" in proof.fault.holds
    with pytest.raises(ModelError, match="inconsistent") as caught:
        api.run(plan)
    assert caught.value.exit_code == 2
    assert "_next' over '" in caught.value.facts[0]
