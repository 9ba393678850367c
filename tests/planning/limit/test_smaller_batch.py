"""What a refusal says of smaller batches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest

from planner import api
from planner.errors import InfeasibleError
from planner.features.zoo.models import mlp
from planner.graph.files.to_onnx import to_model


@pytest.fixture
def of_any_batch(tmp_path: Path) -> Path:
    """A training step whose inputs and results begin with a symbolic batch."""
    model, path = to_model(mlp(2, 16, 256)), tmp_path / "step.onnx"
    del model.graph.value_info[:]
    for value in (*model.graph.input, *model.graph.output):
        if value.name.startswith("x"):
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(model, path)
    return path


def refused(path: Path, memory: int, dims: Mapping[str, int] | None = None, recompute: str = "auto") -> InfeasibleError:
    with pytest.raises(InfeasibleError) as found:
        api.plan(path, gpus=2, memory=memory, dim=dims, recompute=recompute, out=path.parent / "plan", models=False)
    assert found.value.what.count("no plan") == 1
    return found.value


@pytest.mark.parametrize("recompute", ["auto", "none"])
def test_the_largest_batch_that_is_not_too_much_is_named(of_any_batch: Path, recompute: str) -> None:
    said = re.search(
        r"; on 2 workers no batch above (\d+) fits$", refused(of_any_batch, 10_000, {"batch": 256}, recompute).hint
    )
    assert said is not None
    most = int(said[1])
    assert 1 < most < 256
    assert refused(of_any_batch, 10_000, {"batch": most + 1}, recompute).what.startswith("no plan fits")
    with pytest.raises(InfeasibleError, match="no plan was found that fits"):  # it is not too much for every plan
        api.plan(of_any_batch, gpus=2, memory=10_000, dim={"batch": most}, recompute=recompute, models=False)


def test_no_batch_fits_where_parameters_alone_are_too_much(of_any_batch: Path) -> None:
    assert refused(of_any_batch, 1000, {"batch": 256}).hint.endswith("; no batch fits on 2 workers")
    assert refused(of_any_batch, 1000, {"batch": 1}).hint.endswith("; the batch is 1 already")


def test_where_no_plan_was_found_a_batch_is_named_near_which_there_is_one(of_any_batch: Path) -> None:
    found = refused(of_any_batch, 10_000, {"batch": 80})
    said = re.search(r"so might about \d+ workers; on 2 workers a batch of about (\d+) might fit$", found.hint)
    assert said is not None
    batch = int(said[1])
    assert 1 < batch < 80
    dims = {"batch": batch * 9 // 10}
    api.plan(of_any_batch, gpus=2, memory=10_000, dim=dims, out=of_any_batch.parent / "p", models=False)


def test_a_batch_that_the_file_states_cannot_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "step.onnx"
    onnx.save(to_model(mlp(2, 16, 256)), path)
    assert refused(path, 10_000).hint.endswith("; a smaller batch takes less, but the file states its batch")
