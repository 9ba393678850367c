"""A dozen networks that PyTorch exported: planned, run and verified, as they are and as training steps (world.py)."""

from pathlib import Path

import pytest

import world

FOLDER = Path(__file__).parents[1] / "models" / "world"
MODELS = sorted(FOLDER.glob("*.onnx"))
assert len(MODELS) == 12, "the files are there"


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.stem)
def test_the_forward_graph_and_the_training_step_are_planned_and_right(model: Path) -> None:
    row = world.examine(model, counts=(2, 3))
    for kind in ("forward", "training"):
        assert [found["result"] for found in row[kind].values()] == ["verified", "verified"], row[kind]
