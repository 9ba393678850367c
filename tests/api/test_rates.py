"""What repeated and uneven work is worth: stated, refused, and said."""

import json
from pathlib import Path

import pytest

from planner.artifacts.plan import Plan
from planner.commands import main as cli
from planner.features.zoo.models import build
from planner.graph.files.to_onnx import write_model
from planner.machine.rates import Rates


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_model(build("mlp-2x24", batch=36), tmp_path / "m.onnx")
    return tmp_path


def test_stated_rates_decide_and_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Where computing is dear nothing is repeated; where it is cheap beside the links, nothing moves."""
    found = {}
    for name, speed in (("dear", "1MFLOP/s"), ("cheap", "1PFLOP/s")):
        rates = f"link=1GB/s,memory=1000GB/s,compute={speed}"
        assert cli.main(["plan", "m.onnx", "--gpus", "4", "--rates", rates, "-o", name]) == 0
        assert "by rates" in capsys.readouterr().out
        found[name] = Plan.from_json(Path(name, "plan.json").read_text())
    assert found["cheap"].moved_bytes < found["dear"].moved_bytes
    assert found["cheap"].rates == Rates(1000.0, 1e6)
    assert cli.main(["plan", "m.onnx", "--gpus", "4", "-o", "usual"]) == 0
    assert "by rates" not in capsys.readouterr().out
    assert Plan.from_json(Path("usual", "plan.json").read_text()).rates == Rates()


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ("link=1,memory=1GB/s,compute=1GFLOP/s", "--rates link: '1' has no unit"),
        ("link=1GB/s,memory=0GB/s,compute=1GFLOP/s", "--rates memory: '0GB/s' is not positive"),
        ("link=1GB/s", "--rates: memory and compute missing"),
        ("link=1TB/s,memory=1B/s,compute=1TFLOP/s", "touches 1e-12 bytes"),
    ],
)
def test_rates_that_cannot_be_counted_with_are_refused(
    rates: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["plan", "m.onnx", "--gpus", "4", "--rates", rates, "--json"]) == 2
    assert said in capsys.readouterr().err
    assert not list(Path().glob("*.tofu4"))


def test_plans_of_explain_and_json_state_what_excess_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "m.onnx", "--gpus", "3", "-o", "p", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 0 <= found["repeated_bytes"] <= found["excess_bytes"]
    assert found["slowest_share"] == pytest.approx(1 + found["excess_bytes"] / found["computing_bytes"])
    assert cli.main(["explain", "p", "--json"]) == 0
    explained = json.loads(capsys.readouterr().out)
    for key in ("moved_bytes", "excess_bytes", "repeated_bytes", "slowest_share"):
        assert explained[key] == found[key]


def test_strategies_are_compared_by_the_rates_of_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    costs = {}
    for speed in ("1MFLOP/s", "1PFLOP/s"):
        rates = f"link=1GB/s,memory=1000GB/s,compute={speed}"
        assert cli.main(["plan", "m.onnx", "--gpus", "4", "--rates", rates, "--force", "-o", "p"]) == 0
        capsys.readouterr()
        assert cli.main(["compare", "p", "--json"]) == 0
        rows = [row for row in json.loads(capsys.readouterr().out)["rows"] if not row["reason"]]
        assert all(row["cost"] == row["moved_bytes"] + row["excess_bytes"] for row in rows)
        costs[speed] = {row["strategy"]: row["cost"] for row in rows}
        assert costs[speed]["tofu"] == min(costs[speed].values())
    assert costs["1MFLOP/s"]["tofu"] > costs["1PFLOP/s"]["tofu"]
