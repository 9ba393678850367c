"""A plan that is written without models, and its models that are made of it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Never

import pytest
from click.testing import CliRunner

from planner import api
from planner.api import running
from planner.artifacts.plan import Plan, digest
from planner.artifacts.plan_folder import open_folder
from planner.commands.main import tofu
from planner.errors import ModelError, UsageError
from planner.features.zoo.models import mlp
from planner.graph.files.to_onnx import write_model
from planner.options.running import RunOptions
from planner.planning.limit.trial import Trial
from planner.planning.session import Session
from planner.planning.thresholds import Work
from planner.runtime.plan_files import load_plan


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("model") / "mlp.onnx"
    write_model(mlp(2, 16, 12), file)
    return file


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture
def bare(model: Path, tmp_path: Path) -> Path:
    """The folder of a plan without models."""
    return api.plan(model, gpus=2, effort="quick", out=tmp_path / "bare", models=False).directory


@pytest.mark.parametrize("is_usual", [True, False])
def test_what_is_built_is_what_the_plan_would_have_been_written_with(
    model: Path, is_usual: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest says how the program is made where that is not as usual: lean, with workers that lie apart."""
    if not is_usual:
        lean = {"is_lean": True, "limit_bytes": 9_000, "apart": ((0.0, 3.0, 1.0), (1.0, 0.0, 2.5), (2.0, 1.0, 0.0))}
        monkeypatch.setattr(Session, "_nearest", lambda _, trial: Trial(trial.decided, **lean))
    whole, bare = (
        api.plan(model, gpus=3, effort="quick", out=tmp_path / name, models=models)
        for name, models in (("whole", True), ("bare", False))
    )
    assert (whole.has_models, bare.has_models) == (True, False)
    assert contents(bare.directory).keys() == {"plan.json", "model.onnx", "manifest.json"}
    assert ("making" in json.loads((bare.directory / "manifest.json").read_bytes())) == (not is_usual)
    built = api.build(bare.directory)
    assert built.workers == 3
    assert contents(bare.directory) == contents(whole.directory)


@pytest.mark.slow
def test_a_plan_under_a_limit_is_built_as_it_was_planned(model: Path, tmp_path: Path) -> None:
    for name, models in (("whole", True), ("bare", False)):
        api.plan(model, gpus=3, effort="quick", memory=3008, out=tmp_path / name, models=models)
    assert "making" in json.loads((tmp_path / "bare" / "manifest.json").read_bytes())
    api.build(tmp_path / "bare")
    assert contents(tmp_path / "bare") == contents(tmp_path / "whole")


def test_a_plan_without_models_is_explained_compared_and_drawn(bare: Path, tmp_path: Path) -> None:
    assert not open_folder(bare).has_models
    assert api.explain(bare).plan.workers == 2
    assert api.diff(bare, bare).is_none
    api.report(bare, output=tmp_path / "bare.html")
    api.build(bare)
    api.report(bare, output=tmp_path / "built.html")
    pages = [(tmp_path / name).read_text() for name in ("bare.html", "built.html")]
    assert pages[0].replace("bare.html", "built.html") == pages[1]


def test_where_a_program_takes_minutes_a_plan_without_models_is_told_by_tables(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(_: Trial) -> Never:
        raise AssertionError("no program is made")

    whole = api.plan(model, topology="dgx-h100", gpus=2, effort="quick", objective="bytes", out=tmp_path / "whole").plan
    monkeypatch.setattr(Work.PROGRAM, "most_parts", 0)
    monkeypatch.setattr(Work.OUTLOOK, "most_parts", 0)
    options = ["--topology", "dgx-h100", "--gpus", "2", "--effort", "quick", "--objective", "bytes", "--no-models"]
    with monkeypatch.context() as patch:
        patch.setattr(Trial, "partitioned", property(made))
        result = CliRunner().invoke(tofu, ["plan", str(model), *options, "-o", str(tmp_path / "bare")])
    assert result.exit_code == 0, result.output
    assert "per step, as the search adds it up" in " ".join(result.stdout.split())
    assert "at least " in result.stdout, "the memory of a plan without a program is a lower bound"
    plan = open_folder(tmp_path / "bare").plan
    assert (plan.has_program, plan.estimate, plan.soybean_bytes) == (False, None, None)
    assert (plan.tilings, plan.moved_bytes) == (whole.tilings, whole.moved_bytes)
    assert 0 < max(plan.peak_bytes) <= max(whole.peak_bytes)
    assert plan.estimated_seconds == pytest.approx(whole.estimated_seconds, rel=0.1)
    assert Plan.from_json(plan.to_json()) == plan
    api.build(tmp_path / "bare")
    assert load_plan(tmp_path / "bare").program.peak_bytes == whole.peak_bytes


def test_a_run_builds_by_itself_and_says_so(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = SimpleNamespace(is_interrupted=False, profile=None)
    monkeypatch.setattr(running, "run_with", lambda *_, **__: outcome)
    told: list[str] = []
    api.run(bare, notice=told.append)
    assert open_folder(bare).has_models
    assert told == [f"note: {bare} has no models yet: they are made now, as `tofu build` does"]
    api.run(bare, notice=told.append)
    assert len(told) == 1


def test_ranks_do_not_build(bare: Path) -> None:
    with pytest.raises(UsageError, match="has no models yet"):
        running._build(bare, RunOptions(engine="mpi"))
    assert not open_folder(bare).has_models


def test_models_that_are_there_are_made_anew_by_force_alone(bare: Path) -> None:
    api.build(bare)
    before = contents(bare)
    with pytest.raises(UsageError, match="has the models of its workers"):
        api.build(bare)
    (bare / "worker1.onnx").write_bytes(b"damaged")
    with pytest.raises(ModelError, match="do not belong together") as refused:
        open_folder(bare)
    assert refused.value.hint == f"make the workers' models anew: tofu build {bare} --force"
    api.build(bare, force=True)
    assert contents(bare) == before


def test_a_build_that_is_broken_off_leaves_a_plan_without_models(bare: Path) -> None:
    def broken_off(doing: str, *, cost: int | None = None, lower: int | None = None) -> None:
        if doing == "writing worker 2 of 2":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        api.build(bare, progress=broken_off)
    assert not open_folder(bare).has_models
    api.build(bare)
    with pytest.raises(KeyboardInterrupt):
        api.build(bare, force=True, progress=broken_off)
    assert not open_folder(bare).has_models


def test_what_is_no_plan_or_another_model_is_refused(bare: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no plan"):
        api.build(tmp_path)
    (bare / "model.onnx").write_bytes((bare / "model.onnx").read_bytes() + b"\0")
    with pytest.raises(ModelError, match="do not belong together") as refused:
        api.build(bare)
    assert refused.value.facts == ("model.onnx is not the file that was planned: its digest differs",)
    assert refused.value.hint == "plan the model again with `tofu plan`"


def test_a_plan_that_states_other_memory_is_refused(bare: Path) -> None:
    plan, manifest = json.loads((bare / "plan.json").read_bytes()), json.loads((bare / "manifest.json").read_bytes())
    plan["peak_bytes"][1] += 1
    text = json.dumps(plan).encode()
    manifest["files"]["plan.json"] = digest(text)
    (bare / "plan.json").write_bytes(text)
    (bare / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match="states other memory than its program takes"):
        api.build(bare)
    assert contents(bare).keys() == {"plan.json", "model.onnx", "manifest.json"}


def test_a_folder_whose_models_are_in_no_manifest_is_none_without_models(bare: Path) -> None:
    manifest = json.loads((bare / "manifest.json").read_bytes())
    del manifest["has_models"]
    (bare / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match="the plan is for 2 workers, and not these are there"):
        open_folder(bare)


def test_the_commands(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["plan", str(model), "--gpus", "2", "--effort", "quick", "--no-models", "-o", "p"]
    told = CliRunner().invoke(tofu, line, standalone_mode=False)
    assert "no models yet: `tofu build` or `tofu run` makes them" in " ".join(told.stdout.split())
    told = CliRunner().invoke(tofu, ["build", "p", "--json"], standalone_mode=False)
    built = json.loads(told.stdout)
    assert built["workers"] == 2
    assert built["model_bytes"] == sum(file.stat().st_size for file in Path("p").glob("worker*.onnx"))
    told = CliRunner().invoke(tofu, ["build", "p", "--force"], standalone_mode=False)
    assert "written to  p:" in told.stdout
