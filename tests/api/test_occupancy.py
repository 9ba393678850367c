"""``tofu explain --view memory``: what it draws is what the plan states, with the workers' models and without."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

import planner
from planner import api
from planner.errors import UsageError
from planner.features.zoo.models import build
from planner.graph.files.to_onnx import write_model
from planner.graph.step.purposes import Purpose


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan for three workers, which have unequal parts, within a limit, without the workers' models."""
    where = tmp_path_factory.mktemp("occupancy")
    write_model(build("mlp-2x32", batch=16), where / "m.onnx")
    api.plan(where / "m.onnx", gpus=3, memory="1MiB", effort="quick", out=where / "plan", models=False)
    return where / "plan"


def test_what_is_drawn_is_what_the_plan_states(folder: Path) -> None:
    stated = tuple(json.loads((folder / "plan.json").read_text())["peak_bytes"])
    assert len(set(stated)) > 1, "workers are not all alike"
    found = [api.memory(folder, worker=worker) for worker in range(3)]
    assert tuple(int(one.occupancy.held_bytes.max()) for one in found) == stated
    assert {one.peak_bytes for one in found} == {stated}
    assert {one.limit_bytes for one in found} == {1 << 20}
    assert api.memory(folder).occupancy.worker == stated.index(max(stated))
    assert {Purpose.PARAMETERS, Purpose.DATA} <= found[0].occupancy.by_purpose.keys()
    plain = [api.as_json(one) for one in found]
    assert [max(one["held_bytes"]) for one in plain] == list(stated)
    api.build(folder)
    again = [api.memory(folder, worker=worker) for worker in range(3)]
    assert [api.as_json(one) for one in again] == plain, "the workers' models lay buffers out as the plan does"


def test_what_is_printed(folder: Path) -> None:
    stated = json.loads((folder / "plan.json").read_text())["peak_bytes"]
    file = io.StringIO()
    api.show(planner.memory(folder, worker=1), file)
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    said = " ".join(file.getvalue().split())
    assert "worker 1 of 3" in said
    assert "limit 1.0 MiB, of which" in said
    brief = io.StringIO()
    api.show(api.explain(folder), brief)
    peak = api.memory(folder)
    assert max(stated) == peak.occupancy.total_bytes
    (line,) = [line for line in brief.getvalue().splitlines() if line.startswith("memory per worker")]
    top = io.StringIO()
    api.show(peak, top)
    amount, of_tensors, may_take = line.removeprefix("memory per worker").partition(" of tensors at peak; ")
    assert of_tensors
    assert may_take == "limit 1.0 MiB"
    assert any(line.strip().startswith(f"{amount.strip()} |") for line in top.getvalue().splitlines()), (
        "the top of the drawing"
    )


def test_a_worker_that_is_not_there(folder: Path) -> None:
    with pytest.raises(UsageError, match="the plan has no worker 3") as caught:
        api.memory(folder, worker=3)
    assert caught.value.hint == "its workers are 0 to 2"
