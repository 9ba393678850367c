"""What plans for a machine are judged by, and what is said beside them."""

import json
from pathlib import Path
from typing import Any

import pytest

from fast_suite import chosen, spread
from planner import api, opdefs
from planner.artifacts.plan import Plan
from planner.commands import main as cli
from planner.cost.tables import CostTables
from planner.errors import ModelError, UsageError
from planner.features.zoo.models import build
from planner.graph.files.to_onnx import write_model
from planner.machine.routes import level_ways
from planner.machine.topology_file import load_topology
from planner.planning.beside import other_counts, warnings
from planner.planning.bodies import decide_with_bodies
from planner.planning.limit.trial import Trial
from planner.planning.objective import LITERATURE, Times, of_the_literature
from planner.results import Beside, OtherCount
from planner.search.model.cuts import cuts_of_levels
from planner.search.request import SearchRequest

TWO = """\
name: two
device: {memory: 1GiB, compute: {float32: 1TFLOP/s}, memory_bandwidth: 100GB/s}
levels: [{name: link, ways: 2, bandwidth: 1GB/s, latency: 5us}]
"""
EIGHT = TWO.replace("ways: 2", "ways: 8").replace("name: two", "name: eight")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_model(build("mlp-2x24", batch=36), tmp_path / "m.onnx")
    (tmp_path / "two.yaml").write_text(TWO)
    (tmp_path / "eight.yaml").write_text(EIGHT)
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str], line: str) -> dict[str, Any]:
    assert cli.main([*line.split(), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def assert_fastest(model: Path, topology: str) -> None:
    """The default plan takes no longer than that of any strategy, and is tofu's own row."""
    planned = api.plan(model, topology=topology, out=Path("fastest")).plan
    compared = api.compare(model, topology=topology)
    assert planned.estimate is not None
    seconds = {row.strategy: row.estimated_seconds for row in compared.rows if row.estimated_seconds is not None}
    assert len(seconds) > 10
    assert planned.estimate.estimated_seconds <= min(seconds.values())
    assert seconds["tofu"] == pytest.approx(planned.estimate.estimated_seconds)
    assert compared.objective == "time"


@pytest.mark.parametrize("topology", chosen(["two.yaml", "eight.yaml", "p2.8xlarge", "icml18-p100"], fast=["two.yaml"]))
def test_no_strategy_is_faster_than_the_default_plan(topology: str) -> None:
    assert_fastest(Path("m.onnx"), topology)


@pytest.mark.parametrize("name", chosen(["lenet-5", "gpt-2x128-4h"], [], night=["gpt-2x128-4h"]))
def test_no_strategy_is_faster_on_a_machine_of_today(name: str) -> None:
    write_model(build(name), Path("zoo.onnx"))
    assert_fastest(Path("zoo.onnx"), "dgx-h100")


def test_with_a_machine_the_objective_is_time_else_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    by_time = answer(capsys, "plan m.onnx --topology eight.yaml -o a")
    by_bytes = answer(capsys, "plan m.onnx --topology eight.yaml --objective bytes -o b")
    without = answer(capsys, "plan m.onnx --gpus 8 -o c")
    assert [found["objective"] for found in (by_time, by_bytes, without)] == ["time", "bytes", "bytes"]
    assert [found["gap_of"] for found in (by_time, by_bytes, without)] == ["time", "bytes", "bytes"]
    assert by_time["estimated_seconds"] < by_bytes["estimated_seconds"]
    assert by_time["moved_bytes"] < by_bytes["moved_bytes"], "over such links it is quicker to repeat the work"
    assert by_bytes["certified_gap"] == without["certified_gap"] == 0
    assert "data_parallel_seconds" not in without


def test_the_gap_says_of_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main("plan m.onnx --topology eight.yaml --effort thorough -o a".split()) == 0
    assert "0% of time, as the search adds it up" in capsys.readouterr().out
    assert cli.main("plan m.onnx --gpus 8 -o b".split()) == 0
    assert "optimality gap  0% (" in capsys.readouterr().out
    written = json.loads(Path("a/plan.json").read_text())
    assert Plan.from_json(json.dumps(written)).gap_of == written["gap_of"] == "time"
    assert Plan.from_json(json.dumps({**written, "gap_of": "bytes"})).gap_of == "bytes"
    with pytest.raises(ModelError, match="gap_of is neither bytes nor time: miles"):
        Plan.from_json(json.dumps({**written, "gap_of": "miles"}))
    written.pop("gap_of")
    with pytest.raises(ModelError, match="gap_of"):
        Plan.from_json(json.dumps(written))


def test_the_literature_stays_what_it_is() -> None:
    found = api.plan(Path("m.onnx"), topology="eight.yaml", strategy="fsdp", out=Path("p"))
    row = next(row for row in api.compare(Path("m.onnx"), topology="eight.yaml").rows if row.strategy == "fsdp")
    assert found.objective == "bytes"
    assert found.plan.estimate is not None
    assert found.plan.estimate.estimated_seconds == row.estimated_seconds


def test_where_nothing_says_how_fast_devices_are_bytes_are_the_objective(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mute.yaml").write_text(TWO.replace(", compute: {float32: 1TFLOP/s}, memory_bandwidth: 100GB/s", ""))
    found = answer(capsys, "plan m.onnx --topology mute.yaml -o p")
    assert found["objective"] == "bytes"
    assert "the topology does not say how fast its devices compute" in found["warnings"][0]
    api.report("p", output="p.html")
    assert "Warning: the topology does not say how fast its devices compute" in Path("p.html").read_text()
    assert answer(capsys, "plan m.onnx --topology mute.yaml --objective bytes -o q")["warnings"] == []
    assert cli.main("plan m.onnx --topology mute.yaml --objective time -o r".split()) == 2


def test_a_part_of_a_machine_is_planned_for(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "plan m.onnx --topology eight.yaml --gpus 3 -o p")
    assert (found["workers"], found["estimate"]["topology"]) == (3, "eight, 3 of 8 devices")
    assert found["estimate"]["devices"] == [0, 1, 2]
    assert [other["workers"] for other in found["other_workers"]] == [1, 2, 4]
    assert api.run(Path("p"), steps=1, verify=True).verified
    assert cli.main("plan m.onnx --topology eight.yaml --gpus 9 -o q".split()) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "error: topology eight.yaml has 8 devices, and 9 GPUs are asked for",
        "hint: write --gpus 8 or fewer, or --topology with a larger machine",
    ]
    with pytest.raises(UsageError, match="0 workers"):
        api.plan(Path("m.onnx"), topology="eight.yaml", gpus=0, out=Path("q"))


@pytest.mark.slow
def test_what_would_be_faster_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """So small a network is not worth a link."""
    found = answer(capsys, "plan m.onnx --topology eight.yaml -o p")
    one = answer(capsys, "plan m.onnx --topology eight.yaml --gpus 1 -o q")
    assert found["other_workers"][0] == {"workers": 1, "estimated_seconds": one["estimated_seconds"]}
    assert one["estimated_seconds"] <= found["estimated_seconds"] <= found["data_parallel_seconds"]
    assert one["warnings"] == []
    assert found["warnings"][0].endswith("write --gpus 1")
    row = next(r for r in api.compare(Path("m.onnx"), topology="eight.yaml").rows if r.strategy == "data")
    assert found["data_parallel_seconds"] == pytest.approx(row.estimated_seconds)
    assert cli.main("plan m.onnx --topology eight.yaml -o r".split()) == 0
    out = capsys.readouterr().out
    for words in ("per step (data parallelism ", "estimated time", "other GPU counts", "1 worker is estimated"):
        assert words in out


def test_which_numbers_of_workers_are_looked_at() -> None:
    assert [other_counts(count, 8) for count in (1, 2, 3, 7, 8)] == [(), (1,), (1, 2, 4), (1, 4, 8), (1, 4)]
    assert other_counts(7, 7) == (1, 4)


def test_warnings_name_what_is_faster_and_what_to_write() -> None:
    beside = Beside(1e-6, True, (OtherCount(1, 5e-6), OtherCount(4, 3e-6)))
    assert list(warnings(4e-6, 8, beside, "tofu")) == [
        "data parallelism is estimated to be faster, at 1 us: write --objective time",
        "4 workers are estimated to be faster, at 3 us: write --gpus 4",
    ]
    assert list(warnings(4e-6, 8, beside, "fsdp")) == ["4 workers are estimated to be faster, at 3 us: write --gpus 4"]
    assert list(warnings(1e-6, 8, beside, "tofu")) == []
    assert list(warnings(3e-6, 8, Beside(None, True, beside.others), "tofu")) == [
        "4 workers are estimated to be as fast, at 3 us: write --gpus 4"
    ]
    assert list(warnings(3e-6, 2, Beside(None, True, beside.others), "tofu")) == []


@pytest.mark.parametrize(
    ("model", "name"), spread(["cnn-2x8-6", "mlp-2x24"], ["two.yaml", "p2.8xlarge", "icml18-p100"], one_of=3)
)
def test_no_program_is_faster_than_the_bound_for_which_it_would_be_left_out(name: str, model: str) -> None:
    machine, tables = load_topology(name), CostTables()
    graph, workers, levels = build(model, batch=36), load_topology(name).device_count, level_ways(machine)
    times, standard = Times(machine, tables), opdefs.standard()

    def search(strategy: str) -> Any:
        return decide_with_bodies(
            graph, standard, SearchRequest(workers, cuts=cuts_of_levels(levels), strategy=strategy, tables=tables)
        )

    found = [plan for _, plan in of_the_literature(LITERATURE, search) if isinstance(plan, Trial)]
    assert len(found) > 10
    for candidate in found:
        assert 0 < times.at_least(candidate.decided) <= times.seconds(candidate)
    fastest = times.fastest(found, None)
    assert times.seconds(fastest.best) == min(map(times.seconds, found))
    assert fastest.fitting is fastest.best


def test_the_fastest_that_fits_is_told_apart() -> None:
    machine, tables = load_topology("p2.8xlarge"), CostTables()
    graph = build("mlp-2x24", batch=36)
    times = Times(machine, tables)
    found = [
        Trial(
            decide_with_bodies(graph, opdefs.standard(), SearchRequest(8, cuts=(2, 2, 2), strategy=name, tables=tables))
        )
        for name in ("data", "fsdp", "model", "spartan")
    ]
    peaks = {id(one): max(one.partitioned.program.peak_bytes) for one in found}
    best = times.fastest(found, None).best
    limit = min(peaks.values())
    assert peaks[id(best)] > limit, "else nothing is told apart"
    fitting = times.fastest(found, (limit,) * 8).fitting
    wanted = min((one for one in found if peaks[id(one)] <= limit), key=times.seconds)
    assert fitting is not None
    assert times.seconds(fitting) == times.seconds(wanted)
    assert times.fastest(found, (1,) * 8).fitting is None


def test_a_faster_plan_of_the_literature_does_not_pass_over_a_limit_on_memory() -> None:
    free = api.plan(Path("m.onnx"), topology="two.yaml", out=Path("free")).plan
    limit = max(free.peak_bytes) * 3 // 4
    within = api.plan(Path("m.onnx"), topology="two.yaml", memory=f"{limit}B", out=Path("within")).plan
    assert max(within.peak_bytes) <= limit
    assert within.estimate is not None
    assert free.estimate is not None
    assert within.estimate.estimated_seconds >= free.estimate.estimated_seconds
