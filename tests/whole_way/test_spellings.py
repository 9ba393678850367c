"""A network in any spelling has one plan, which runs as the model that the user wrote, under the user's names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from onnx import save_model

import spellings
from fast_suite import spread
from planner import api
from planner.artifacts.place import MANIFEST, PLAN
from planner.artifacts.plan import Plan, digest
from planner.commands import main as cli
from planner.errors import ModelError
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import write_model
from spellings import Cnn, Gpt, Mlp

SMALL = (Mlp(3, 24, 16), Cnn(2, 6, 5, 4), Gpt(1, 12, 3, 6, 4))


def written(sizes: Mlp | Cnn | Gpt, spelling: str, file: Path) -> Path:
    model = spellings.spellings("small", sizes)[spelling]
    if isinstance(model, Graph):
        write_model(model, file)
    else:
        save_model(model, file)
    return file


ALL = [(sizes, spelling) for sizes in SMALL for spelling in spellings.spellings("small", sizes)]


@pytest.mark.parametrize("sample", spread(ALL, one_of=4))
def test_every_spelling_runs_as_its_model(
    plan_of: Callable[..., Any], sample: tuple[Mlp | Cnn | Gpt, str], tmp_path: Path
) -> None:
    """The reference is the model as it was given, op by op: the plan's folder holds that."""
    planned = plan_of(written(*sample, tmp_path / "step.onnx"), 3)
    found = api.run(planned.directory, steps=2, verify=True)
    assert found.verified
    assert found.moved_bytes == planned.result.plan.moved_bytes
    # What the plan has no more is in the model that the run is held against.
    given = {name for op in planned.load().graph.ops for name in op.outputs}
    assert planned.result.plan.in_place.keys() <= given


@pytest.mark.parametrize("sizes", SMALL[:1])
def test_products_in_every_spelling_have_one_plan(
    plan_of: Callable[..., Any], sizes: Mlp | Cnn | Gpt, tmp_path: Path
) -> None:
    moved = {}
    for spelling in spellings.spellings("small", sizes):
        plan = plan_of(written(sizes, spelling, tmp_path / f"{spelling}.onnx"), 4, force=True).result.plan
        assert plan.certified_gap == 0
        moved[spelling] = plan.moved_bytes
    assert len(set(moved.values())) == 1, moved


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp-4x8192-512", "mlp-4x8192-2048"])
def test_peers_networks_have_the_best_known_plan_in_every_spelling(plan_of: Callable[..., Any], name: str) -> None:
    best = {"mlp-4x8192-512": 402_653_184, "mlp-4x8192-2048": 1_610_612_736}[name]
    files = sorted(spellings.FOLDER.glob(f"{name}.*.onnx"))
    assert len(files) >= 5
    for file in files:
        moved = plan_of(file, 8, force=True).result.plan.moved_bytes
        assert moved <= best * 1.001, file.name


def test_explain_says_who_reads_a_tensor_in_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    step = written(SMALL[0], "grad-turned", tmp_path / "step.onnx")
    api.plan(step, gpus=2, out=tmp_path / "plan")
    found = api.explain(tmp_path / "plan", subject="w1.turned.y")
    (row,) = found.in_place
    assert (row.held_by, row.made_by) == ("w1.weight", "w1.turned")
    assert "w1" in row.read_by
    assert {"w1"} <= {op.name for op in found.ops} <= set(row.read_by)
    assert [tensor.name for tensor in found.tensors] == ["w1.weight"]
    # The op that made it is there no more, either.
    assert api.explain(tmp_path / "plan", subject="w1.turned").in_place == found.in_place
    assert cli.main(["explain", str(tmp_path / "plan"), "w1.turned.y"]) == 0
    assert "read in place by" in capsys.readouterr().out
    assert cli.main(["explain", str(tmp_path / "plan"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["in_place"]
    assert {"w0.turned.y", "w1.turned.y", "w2.turned.y"} <= {row["name"] for row in rows}


@pytest.mark.parametrize(
    "rules",
    [
        {"pin": {"w1.turned.y": "S(1)"}},
        {"pin": {"w1.turned.?": "S(1)"}},
        {"forbid": (("w1.turned.y", "S(0)"), ("w1.turned.y", "R"))},
        {"forbid": (("w1.turned.?", "S(0)"), ("w1.turned.?", "R"))},
    ],
)
def test_a_tensor_that_a_rule_is_for_stays_and_has_its_tiling(tmp_path: Path, rules: dict[str, Any]) -> None:
    step = written(SMALL[0], "grad-turned", tmp_path / "step.onnx")
    result = api.plan(step, gpus=2, out=tmp_path / "plan", **rules)
    assert str(result.plan.tilings["w1.turned.y"]) == "S(1)/2"
    assert result.plan.kept == ("w1.turned.y",)
    assert "w1.turned.y" not in result.plan.in_place
    assert "w0.turned.y" in result.plan.in_place
    assert api.run(tmp_path / "plan", verify=True).verified
    # Without the rule the tensor is read in place again, and a plan costs what it costs then.
    free = api.plan(step, gpus=2, out=tmp_path / "free").plan.moved_bytes
    if len(result.prices) == 1:
        assert result.prices[0].price_bytes == result.plan.moved_bytes - free
    found = api.explain(tmp_path / "plan", subject="w1.turned.y")
    assert [tensor.name for tensor in found.tensors] == ["w1.turned.y"]


def test_a_pattern_forbids_only_what_is_there(tmp_path: Path) -> None:
    step = written(SMALL[0], "grad-turned", tmp_path / "step.onnx")
    assert api.plan(step, gpus=2, out=tmp_path / "plan", forbid=(("w1*", "S(0)"),)).plan.kept == ()


def edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes plan.json, and its digest."""
    data = json.loads((folder / PLAN).read_text())
    change(data)
    (folder / PLAN).write_text(json.dumps(data))
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"][PLAN] = digest((folder / PLAN).read_bytes())
    (folder / MANIFEST).write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["in_place"].pop("w1.turned.y"),
        lambda data: data["in_place"].update({"w1.turned.y": "w0.weight"}),
        lambda data: data["kept"].append("w1.turned.y"),
        lambda data: (data.pop("in_place"), data.pop("kept")),
    ],
)
def test_a_plan_that_reads_otherwise_than_its_model_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    api.plan(written(SMALL[0], "grad-turned", tmp_path / "step.onnx"), gpus=2, out=tmp_path / "plan")
    edit(tmp_path / "plan", change)
    with pytest.raises(ModelError, match="does not fit its model"):
        api.explain(tmp_path / "plan")


def test_a_plan_of_the_model_as_it_is_is_explained(tmp_path: Path) -> None:
    """As plans were before there was a canonical form: nothing is read in place."""
    api.plan(written(SMALL[0], "grad-gemm", tmp_path / "step.onnx"), gpus=2, out=tmp_path / "plan")
    edit(tmp_path / "plan", lambda data: (data.pop("in_place"), data.pop("kept")))
    assert api.explain(tmp_path / "plan").in_place == ()
    assert Plan.from_json((tmp_path / "plan" / PLAN).read_bytes()).in_place is None


def test_a_baseline_knows_a_model_by_its_own_ops(tmp_path: Path) -> None:
    """Places in a baseline are those of the file's graph, so that baselines from before are still of their models."""
    step = written(SMALL[0], "written", tmp_path / "step.onnx")
    base = tmp_path / "costs.json"
    api.check([str(step)], gpus=[2], baseline=base, update=True)
    assert "Transpose" in base.read_text()
    assert api.check([str(step)], gpus=[2], baseline=base).is_passed
