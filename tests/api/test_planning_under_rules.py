"""Plans under rules, from the command line to a run: kept, priced, and executed."""

import json
from pathlib import Path

import pytest

from planner import api
from planner.algebra.tiling import Replicate, Tiling
from planner.artifacts.plan import Plan
from planner.commands import main as cli
from planner.features.zoo.models import build
from planner.graph.files.to_onnx import write_model


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_model(build("mlp-2x24", batch=36), tmp_path / "m.onnx")
    return tmp_path


def test_prices_are_printed_for_people_and_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["plan", "m.onnx", "--gpus", "4", "--pin", "w1=R", "--forbid", "x*=R", "-o"]
    assert cli.main([*line, "one", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    first, second = found["prices"]
    assert (first["pin"], second["forbid"]) == ("w1=R", "x*=R")
    without = api.plan(Path("m.onnx"), gpus=4, forbid=(("x*", "R"),), out=Path("other")).plan.cost
    # With the pin readers share a delivery: where the plan without a rule is dearer, the rule costs nothing.
    assert first["price_bytes"] == max(0, found["moved_bytes"] + found["excess_bytes"] - without)
    assert second["price_bytes"] > 0
    assert cli.main([*line, "two"]) == 0
    out = capsys.readouterr().out
    assert "--pin w1=R" in out
    assert "--forbid x*=R" in out


def test_nothing_is_said_of_prices_without_rules(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["plan", "m.onnx", "--gpus", "2", "--replicate", "none", "-o"]
    assert cli.main([*line, "one", "--json"]) == 0
    assert "prices" not in json.loads(capsys.readouterr().out)
    assert cli.main([*line, "two"]) == 0
    assert "price" not in capsys.readouterr().out


def test_what_cannot_be_kept_is_refused_and_nothing_is_written(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "plan m.onnx --gpus 2 --pin v*=R --pin x1=S(3) --forbid x2=O(1) --forbid x2=S(0)/2"
    assert cli.main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "error: a pin or prohibition cannot be kept",
        "  x1=S(3): there is no dim 3: the tensor is [36, 24]",
        "  no tensor matches 'v*'",
        "  x2=O(1): no tensor is ever O(1); write S(dim), R or P",
        "  x2=S(0)/2: a prohibition is of every cut; write S(0)",
        "hint: the options are explained in docs/plan.md",
    ]
    assert [file.name for file in here.iterdir()] == ["m.onnx"]


def test_progress_says_which_price_is_sought() -> None:
    told: list[str] = []
    api.plan(Path("m.onnx"), gpus=2, pin={"w1": "R"}, progress=lambda doing, **_: told.append(doing))
    assert "price 1 of 1: planning without --pin w1=R" in told


@pytest.mark.parametrize("options", [{"replicate": "none"}, {"replicate": "weights"}, {"forbid": (("*", "S(0)"),)}])
def test_plans_under_rules_run_and_move_what_they_say(options: dict[str, object]) -> None:
    result = api.plan(Path("m.onnx"), gpus=4, out=Path("plan"), **options)  # type: ignore[arg-type]
    run = api.run(Path("plan"), verify=True)
    assert run.verified
    assert run.moved_bytes == result.plan.moved_bytes == run.predicted_bytes
    plan = Plan.from_json(Path("plan/plan.json").read_text())
    kept = plan.tilings
    if options.get("replicate") == "none":  # what is delivered may be, as each op's own delivery may
        held = kept.keys() - {delivery.name for delivery in plan.deliveries}
        assert not any(Replicate() in kept[name].placements for name in held)
    if "forbid" in options:
        assert Tiling.parse("S(1)", (2, 2)) in kept.values()
