"""Plans for a topology, from the command line on: estimates, objectives, limits."""

import json
from pathlib import Path
from typing import Any, Literal

import onnx
import pytest

from fast_suite import chosen
from planner import api
from planner.artifacts.plan import Plan
from planner.artifacts.program import Fetch
from planner.artifacts.worker_model import read_worker_model
from planner.commands import main as cli
from planner.errors import UsageError
from planner.features.zoo.models import build
from planner.graph.files.to_onnx import write_model
from planner.spent import PARTS

TWO = """\
name: two
device: {memory: 1GiB, compute: {float32: 1TFLOP/s}, memory_bandwidth: 100GB/s}
levels: [{name: link, ways: 2, bandwidth: 1GB/s, latency: 5us}]
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_model(build("mlp-2x24", batch=36), tmp_path / "m.onnx")
    (tmp_path / "two.yaml").write_text(TWO)
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str], *line: str) -> dict[str, Any]:
    assert cli.main([*line, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_a_plan_for_a_topology_has_an_estimate_which_explain_and_run_repeat(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "plan", "m.onnx", "--topology", "two.yaml", "--objective", "bytes", "-o", "p")
    estimate = found["estimate"]
    assert estimate["topology"] == "two"
    assert estimate["devices"] == [0, 1]
    parts = ("compute_seconds", "transfer_seconds", "synchronisation_seconds")
    assert found["estimated_seconds"] == pytest.approx(sum(estimate[part] for part in parts))
    assert [level["name"] for level in estimate["levels"]] == ["link"]
    assert sum(level["moved_bytes"] for level in estimate["levels"]) == found["moved_bytes"]
    assert answer(capsys, "explain", "p")["estimate"] == estimate
    assert answer(capsys, "run", "p", "--steps", "2", "--measure")["profile"]["estimate"] == estimate
    assert cli.main(["run", "p", "--steps", "2", "--measure"]) == 0
    out = capsys.readouterr().out
    assert "estimated" in out
    assert "est. compute" in out
    plan = Plan.from_json(Path("p/plan.json").read_text())
    assert plan.estimate is not None
    assert plan.estimate.estimated_seconds == found["estimated_seconds"]


def test_without_a_topology_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "plan", "m.onnx", "--gpus", "2", "-o", "p")
    assert (found["estimated_seconds"], found["estimate"]) == (None, None)
    assert cli.main(["explain", "p"]) == 0
    assert "estimated" not in capsys.readouterr().out


def test_compare_has_a_column_of_estimates(capsys: pytest.CaptureFixture[str]) -> None:
    rows = answer(capsys, "compare", "m.onnx", "--topology", "two.yaml")["rows"]
    assert {"strategy", "moved_bytes", "peak_bytes", "estimated_seconds", "excess_bytes"} <= set(rows[0])
    assert all(row["estimated_seconds"] > 0 for row in rows if row["moved_bytes"] is not None)
    rows = answer(capsys, "compare", "m.onnx", "--gpus", "2")["rows"]
    assert {row["estimated_seconds"] for row in rows} == {None}
    assert cli.main(["compare", "m.onnx", "--topology", "two.yaml"]) == 0
    assert "estimated" in capsys.readouterr().out


@pytest.mark.slow
def test_the_least_time_is_no_more_than_that_of_the_least_cost() -> None:
    write_model(build("mlp-5x300"), Path("big.onnx"))
    bytes_plan = api.plan(Path("big.onnx"), topology="p2.8xlarge", objective="bytes", out=Path("a")).plan
    time_plan = api.plan(Path("big.onnx"), topology="p2.8xlarge", objective="time", out=Path("b")).plan
    assert bytes_plan.estimate is not None
    assert time_plan.estimate is not None
    assert time_plan.estimate.estimated_seconds < bytes_plan.estimate.estimated_seconds
    assert time_plan.moved_bytes >= bytes_plan.moved_bytes


NODES = """\
name: nodes
device: {memory: 1GiB, compute: {float32: 1TFLOP/s}, memory_bandwidth: 100GB/s}
levels: [{name: network, ways: 4, bandwidth: 1GB/s, latency: 5us}, {name: link, ways: 3, bandwidth: 50GB/s}]
"""


@pytest.mark.parametrize("objective", chosen(["bytes", "time"], fast=["bytes"]))
def test_outer_cuts_are_those_between_nodes(objective: Literal["bytes", "time"]) -> None:
    """12 = 3 x 2 x 2, the largest factor first, has its outermost cut inside of these nodes."""
    Path("nodes.yaml").write_text(NODES)
    found = api.plan(Path("m.onnx"), topology="nodes.yaml", objective=objective, out=Path("p")).plan
    assert found.cuts == (2, 2, 3)
    assert found.estimate is not None
    assert found.estimate.devices == tuple(range(12))
    models = [read_worker_model(onnx.load(f"p/worker{worker}.onnx")) for worker in range(12)]
    between_nodes = 0
    for receiver, model in enumerate(models):
        for step in model.program.steps:
            if isinstance(step, Fetch):
                sent = step.taken_bytes(model.program.buffers[step.target].dtype.item_bytes)
                between_nodes += sum(amount for sender, amount in sent.items() if sender // 3 != receiver // 3)
    levels = {level.name: level.moved_bytes for level in found.estimate.levels}
    assert levels.get("network", 0) == between_nodes
    assert between_nodes > 0 or objective == "time", "for the least time of so little, nodes may repeat it"
    assert api.plan(Path("m.onnx"), gpus=12, out=Path("q")).plan.cuts == (3, 2, 2)


def test_one_cut_over_two_levels_is_estimated_pair_by_pair() -> None:
    Path("nodes.yaml").write_text(NODES)
    found = api.plan(Path("m.onnx"), topology="nodes.yaml", strategy="equalchop", out=Path("p")).plan
    assert found.cuts == (12,)
    assert found.estimate is not None
    assert found.estimate.devices == tuple(range(12))
    assert sum(level.moved_bytes for level in found.estimate.levels) == found.moved_bytes
    assert {level.name for level in found.estimate.levels} == {"network", "link"}


def test_time_needs_a_machine() -> None:
    with pytest.raises(UsageError, match="on what machine"):
        api.plan(Path("m.onnx"), gpus=2, objective="time", out=Path("p"))


@pytest.mark.parametrize(
    ("memory", "what"),
    [("12Gib", "unknown unit"), ("0B", "must be more than zero"), ("lots", "is not a number of bytes")],
)
def test_memory_is_a_number_of_bytes(memory: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        api.plan(Path("m.onnx"), gpus=2, memory=memory, out=Path("p"))


def test_memory_goes_before_what_the_topology_says(capsys: pytest.CaptureFixture[str]) -> None:
    Path("small.yaml").write_text(TWO.replace("1GiB", "1KiB"))
    assert cli.main("plan m.onnx --topology small.yaml -o p".split()) == 1
    assert not Path("p").exists()
    told = capsys.readouterr().err
    assert "has 1.0 KiB" in told
    assert "hint: " in told
    api.plan(Path("m.onnx"), topology="small.yaml", memory="1GiB", out=Path("p"))


def test_a_device_graph_is_planned_for(capsys: pytest.CaptureFixture[str]) -> None:
    Path("graph.yaml").write_text(
        "name: graph\n"
        "device: {memory: 1GiB, compute: {float32: 1TFLOP/s}, memory_bandwidth: 100GB/s}\n"
        "devices: [{id: 0}, {id: 1, memory: 2GiB}, {id: 2, compute: {float32: 2TFLOP/s}}, {id: 3}]\n"
        # 0 with 2 and 1 with 3 are near, so workers do not stand as they are numbered.
        "links: [{between: [0, 2], bandwidth: 50GB/s}, {between: [1, 3], bandwidth: 50GB/s},\n"
        "        {between: [2, 3], bandwidth: 1GB/s}]\n"
    )
    for objective in ("bytes", "time"):
        line = ("plan", "m.onnx", "--topology", "graph.yaml", "--objective", objective, "-o", objective)
        estimate = answer(capsys, *line)["estimate"]
        assert sorted(estimate["devices"]) == [0, 1, 2, 3]
        names = {level["name"] for level in estimate["levels"]}
        assert names == {"50GB/s", "1GB/s"} or (objective == "time" and names <= {"50GB/s"}), "links may be spared"
    plan = Plan.from_json(Path("bytes/plan.json").read_text())
    assert plan.estimate is not None
    assert cli.main(["explain", "bytes"]) == 0
    assert ("devices, by worker" in capsys.readouterr().out) == (plan.estimate.devices != (0, 1, 2, 3))


def test_parts_of_the_work_are_told(here: Path) -> None:
    """No part is counted twice: together they are no more than the whole."""
    result = api.plan(here / "m.onnx", topology="two.yaml", out=here / "parts")
    parts = result.part_seconds
    assert set(parts) == set(PARTS)
    assert result.search_seconds == parts["search"] + parts["bound"] > 0
    assert min(parts[one] for one in ("reading", "programs", "estimates", "writing")) > 0
    assert sum(parts.values()) <= result.total_seconds
