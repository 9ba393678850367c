"""Exported placements, applied by PyTorch: each rank has the tile that the plan gives the worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from export_models import written
from planner import api
from planner.api.opened import opened
from planner.artifacts.plan_folder import open_folder

_ROOT = Path(__file__).parents[3]
_PYTHONS = (os.environ.get("TORCH_PYTHON", ""), str(_ROOT / "build/world/env/bin/python"), sys.executable)
_HAS_MODE = "from torch.distributed._local_tensor import LocalTensorMode"


@cache
def _torch() -> str:
    """A Python that has PyTorch with LocalTensorMode, or ""."""
    for python in _PYTHONS:
        if python and Path(python).is_file():
            done = subprocess.run([python, "-c", _HAS_MODE], check=False, capture_output=True)
            if done.returncode == 0:
                return python
    return ""


@pytest.mark.exports
@pytest.mark.parametrize(("name", "workers"), [("mlp-5x300", 4), ("lenet-5", 2), ("cnn-3x16-12", 4)])
def test_ranks_have_the_tiles_of_the_plan(name: str, workers: int, tmp_path: Path) -> None:
    if not _torch():
        pytest.skip("PyTorch 2.13 is not there: name a Python that has it in TORCH_PYTHON")
    plan, file = tmp_path / "plan", tmp_path / "placements.py"
    api.plan(written(name, tmp_path), gpus=workers, effort="quick", out=plan)
    api.export(plan, placements=file)
    source = opened(plan)
    tilings, tensors = open_folder(plan).plan.tilings, source.graph.tensors
    producers = {op.outputs[0]: op for op in source.graph.ops}
    products = {
        op.name: [*op.inputs, op.outputs[0]]
        for op in producers.values()
        if op.op_type == "MatMul" and all(len(tensors[name].shape) == 2 for name in op.inputs)
    }
    tiles = {
        name: {
            "shape": tensors[name].shape,
            "regions": [[region.lo, region.hi] for region in tiling.boxes(tensors[name].shape)],
        }
        for name, tiling in tilings.items()
    }
    file_of_tiles = tmp_path / "tiles.json"
    file_of_tiles.write_text(json.dumps({"tensors": tiles, "products": products}))
    tool = _ROOT / "tests" / "tools" / "torch_placements.py"
    done = subprocess.run(
        [_torch(), tool, file, file_of_tiles], check=False, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["differing"] == []
    assert result["tensors"] > len(tiles) // 2
