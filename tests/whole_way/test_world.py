"""A dozen networks that PyTorch exported: planned, run and verified, as they are and as training steps (world.py)."""

from pathlib import Path

import pytest

import world
from fast_suite import by_night

FOLDER = Path(__file__).parents[1] / "models" / "world"
MODELS = sorted(FOLDER.glob("*.onnx"))
assert len(MODELS) == 12, "the files are there"


@pytest.mark.parametrize(("name", "workers"), by_night([model.stem for model in MODELS], [2, 3], one_of=2))
def test_the_forward_graph_and_the_training_step_are_planned_and_right(name: str, workers: int) -> None:
    row = world.examine(FOLDER / f"{name}.onnx", counts=(workers,))
    for kind in ("forward", "training"):
        assert [found["result"] for found in row[kind].values()] == ["verified"], row[kind]
