"""``tofu report``: what is in the files that it writes."""

from __future__ import annotations

import html
import io
import json
import re
import shlex
import shutil
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import onnx
import pytest

import planner
from hostile_names import COMMENT, ESCAPE, IMAGE, OP, hostile_model
from planner import api, opdefs
from planner.api.opened import opened
from planner.api.timing import times_of
from planner.artifacts.measured import read_measured
from planner.artifacts.plan import Plan, digest
from planner.artifacts.waits import levels
from planner.commands.main import main
from planner.cost.tables import CostTables
from planner.errors import ModelError, UsageError
from planner.features.report.page.layers import PARTS, layers
from planner.features.report.page.throughput import peak_share, rate
from planner.features.report.run import memory_of_page
from planner.features.zoo.models import build
from planner.graph.core.model import DType
from planner.graph.files.to_onnx import write_model
from planner.machine.topology_file import Device
from planner.partition.collectives import collectives, counted
from planner.partition.occupancy import occupancy
from planner.planning.thresholds import Work
from planner.progress import silent
from planner.runtime.plan_files import load_plan
from planner.units import format_bytes, format_seconds

FOUR = """\
name: four
device: {memory: 1GiB, compute: {float32: 1TFLOP/s}, memory_bandwidth: 100GB/s}
levels:
  - {name: outer, ways: 2, bandwidth: 1GB/s, latency: 5us}
  - {name: inner, ways: 2, bandwidth: 8GB/s, latency: 5us}
"""
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan on a topology of two levels, that ran once and was measured."""
    where = tmp_path_factory.mktemp("report")
    write_model(build("lenet-5", batch=32), where / "m.onnx")
    (where / "four.yaml").write_text(FOUR)
    api.plan(where / "m.onnx", topology=str(where / "four.yaml"), objective="bytes", out=where / "plan")
    api.run(where / "plan", steps=2, profile=True)
    return where / "plan"


def plan_of(folder: Path) -> Plan:
    return Plan.from_json((folder / "plan.json").read_bytes())


def data_of(page: str) -> dict[str, Any]:
    """What the script of a page reads."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    data = json.loads(text)
    assert isinstance(data, dict)
    return data


def unpacked(data: dict[str, Any]) -> dict[str, list[Any]]:
    """By name the record of each tensor, as the script unpacks them."""
    records_by_name: dict[str, list[Any]] = {}
    for texts, count, numbers, runs in data["forms"]:
        records = [record for record, again in zip(runs[::2], runs[1::2], strict=True) for _ in range(again)]
        values, width = data["numbers"][numbers], len(texts) - 1
        for member in range(count):
            member_numbers = values[member * width : (member + 1) * width]
            name = texts[0] + "".join(f"{number}{text}" for number, text in zip(member_numbers, texts[1:], strict=True))
            records_by_name[name] = data["records"][records[member]]
    return records_by_name


@pytest.mark.slow
def test_a_page_has_every_tensor_with_its_tiles(folder: Path, tmp_path: Path) -> None:
    result = api.report(folder, output=tmp_path / "p.html")
    page, plan = (tmp_path / "p.html").read_text(), plan_of(folder)
    assert result.page_bytes == (tmp_path / "p.html").stat().st_size
    assert result.is_measured
    assert result.left_out == ()
    data = data_of(page)
    tensors = unpacked(data)
    assert set(tensors) == set(plan.tilings)
    for name, (shape, _, _, tiling, moved, drawn, _) in tensors.items():
        extents = data["shapes"][shape]
        assert (data["tilings"][tiling], moved) == (str(plan.tilings[name]), plan.tensor_bytes[name])
        boxes = plan.tilings[name].boxes(tuple(extents))
        for worker in range(plan.workers):
            region = [[0, size] for size in extents or [1]]
            for dim, bounds, pieces in data["tiles"][drawn]:
                region[dim] = bounds[2 * pieces[worker] : 2 * pieces[worker] + 2]
            assert region == [list(pair) for pair in zip(boxes.lo[worker], boxes.hi[worker], strict=True)]


def test_a_page_says_what_the_plan_says(folder: Path, tmp_path: Path) -> None:
    api.report(folder, output=tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text()
    for section in ("verdict", "beside", "network", "why", "memory", "traffic", "schedule", "certainty"):
        assert page.count(f'<section id="{section}">') == 1, section
    beside = page[page.index('<section id="beside"') : page.index('<section id="network"')]
    assert re.findall(r"<tr><td>(.*?)</td>", beside)[:4] == ["this plan", "data parallelism", "FSDP", "Megatron-LM"]
    assert "no plan: there is no attention" in beside
    totals = counted(collectives(load_plan(folder, silent).program))
    traffic = page[page.index('<section id="traffic"') : page.index('<section id="schedule"')]
    rows = re.findall(r"<tr><td>([a-z-]+)</td><td[^>]*>([\d,]+)</td><td[^>]*>.*?</td><td[^>]*>(.*?)</td></tr>", traffic)
    shown = [(kind, f"{total['count']:,}", format_bytes(total["moved_bytes"])) for kind, total in totals.items()]
    assert shown
    assert rows[: len(shown)] == shown
    assert re.search(r"Exposed communication: [\d.]+ [mun]?s, [\d.]+% of the step", page)
    assert "lower bound" in page, "the search of a small network computes one"
    assert "Measured by tofu run --measure" in page
    for level in ("outer", "inner"):
        assert f"<td>{level}</td>" in page


def test_a_page_refuses_whatever_is_not_its_own(folder: Path, tmp_path: Path) -> None:
    api.report(folder, output=tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src &#x27;none&#x27;; script-src &#x27;sha256-")
    assert "unsafe" not in policy
    assert not re.search(r"""(?:src|href|action)=["'](?!#)""", page)
    assert not re.search(r' style="| on[a-z]+="|@import|url\(', page)


def test_names_are_no_markup(tmp_path: Path) -> None:
    api.plan(hostile_model(tmp_path), gpus=2, out=tmp_path / "plan")
    api.report(tmp_path / "plan", output=tmp_path / "p.html", svg=tmp_path / "s.svg")
    page, svg = (tmp_path / "p.html").read_text(), (tmp_path / "s.svg").read_text()
    for text in (page, svg):
        assert "\x1b" not in text
        for piece in ("<img", "alert(1)</", "<!--", "<script>alert", "<svg onload"):
            assert piece not in text
    assert page.count("<script") == 2
    assert set(unpacked(data_of(page))) == {IMAGE, ESCAPE.replace("\x1b", "\\x1b"), COMMENT}
    root = ElementTree.fromstring(svg)
    assert {node.tag for node in root.iter()} <= {
        f"{SVG}{name}" for name in ("svg", "title", "rect", "defs", "symbol", "path", "text", "g", "use")
    }
    titles = "\n".join(node.text or "" for node in root.iter(f"{SVG}title"))
    assert IMAGE in titles
    assert OP in titles


def test_the_strip_alone_has_a_column_for_each_product(folder: Path, tmp_path: Path) -> None:
    api.report(folder, svg=tmp_path / "s.svg")
    root = ElementTree.fromstring((tmp_path / "s.svg").read_text())
    used = [node.get("href", "") for node in root.iter(f"{SVG}use")]
    symbols = {f"#{node.get('id')}" for node in root.iter(f"{SVG}symbol")}
    assert used
    assert set(used) == symbols, "every square is drawn, and every drawn square is there"


def test_a_trace_is_of_the_form_and_adds_up_to_the_simulation(folder: Path, tmp_path: Path) -> None:
    result = api.report(folder, trace=tmp_path / "t.json")
    content = json.loads((tmp_path / "t.json").read_text())
    complete = checked(content)
    assert result.trace_events == len(complete)
    plan, simulated = plan_of(folder), api.simulate(folder)
    assert simulated.estimate == plan.estimate
    assert result.simulated_seconds == simulated.simulated_seconds
    assert result.differing[: len(simulated.differing)] == simulated.differing
    threads = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in content["traceEvents"]
        if event["name"] == "thread_name"
    }
    assert {event["pid"] for event in complete} == set(range(4))
    by_worker: dict[str, list[float]] = {name: [0.0] * 4 for name in set(threads.values())}
    for event in complete:
        by_worker[threads[event["pid"], event["tid"]]][event["pid"]] += event["dur"] / 1e6
    assert by_worker["simulated: computing"] == pytest.approx(
        [times.compute_seconds for times in simulated.worker_times]
    )
    assert by_worker["simulated: fetching"] == pytest.approx([times.fetch_seconds for times in simulated.worker_times])
    assert by_worker["simulated: computing"] == pytest.approx(simulated.estimate.worker_compute_seconds)
    alone = [event for event in complete if event["tid"] in (1, 2, 3)]
    assert max(event["ts"] + event["dur"] for event in alone) / 1e6 == pytest.approx(simulated.simulated_seconds)
    for track in (2, 3):
        moved = sum(event["args"]["moved_bytes"] for event in alone if event["tid"] == track)
        assert moved == plan.moved_bytes, "what is fetched, and what is sent"
    measured = read_measured(folder)
    assert measured is not None
    computed = [sum(step.seconds for step in steps if not step.is_fetch) for steps in measured.workers]
    assert by_worker["measured: computing"] == pytest.approx(computed)


def test_a_simulation_is_printed_beside_its_estimate(folder: Path) -> None:
    simulated, printed = api.simulate(folder), io.StringIO()
    planner.show(simulated, printed)
    lines = printed.getvalue().splitlines()
    (headline,) = [line for line in lines if line.startswith("simulated ")]
    assert format_seconds(simulated.simulated_seconds) in headline
    assert ("than estimated" in headline) == simulated.differs
    by_worker = lines[lines.index("worker      computes     fetches       waits") + 1 :][:4]
    assert [line.split()[0] for line in by_worker] == ["0", "1", "2", "3"]
    assert simulated.differing
    assert [line.split()[-1] for line in lines[-len(simulated.differing) :]] == [
        step.name.split()[-1] for step in simulated.differing
    ]


def test_events_of_a_trace_say_what_they_are_of(folder: Path, tmp_path: Path) -> None:
    api.report(folder, trace=tmp_path / "t.json")
    content = json.loads((tmp_path / "t.json").read_text())
    plan, complete = plan_of(folder), checked(content)
    computed = [event for event in complete if event["name"] == "conv1" and event["tid"] == 1]
    assert [event["pid"] for event in computed] == [0, 1, 2, 3]
    # 32 images, 28 x 28 outputs of 6 channels: 5 x 5 products of two operations each and a bias, over four workers.
    assert sum(event["args"]["flop"] for event in computed) == 32 * 28 * 28 * 6 * (2 * 25 + 1)
    facts = {key: computed[0]["args"][key] for key in ("op_type", "tensor", "split", "strategy")}
    strategy, tiling = (str(plan.strategies["conv1"]), str(plan.tilings["conv1.y"]))
    assert facts == {"op_type": "Conv", "tensor": "conv1.y", "split": tiling, "strategy": strategy}
    inside: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for event in complete:
        inside[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    ends = {phase: {event["id"]: event for event in content["traceEvents"] if event["ph"] == phase} for phase in "sf"}
    assert ends["s"].keys() == ends["f"].keys()
    assert ends["s"]
    for number, sent in ends["s"].items():
        received = ends["f"][number]
        assert sent["pid"] != received["pid"]
        assert sent["ts"] <= received["ts"]
        for end in (sent, received):
            assert any(start <= end["ts"] < stop for start, stop in inside[end["pid"], end["tid"]])
    counters: dict[tuple[int, str], list[float]] = defaultdict(list)
    for event in content["traceEvents"]:
        if event["ph"] == "C":
            counters[event["pid"], event["name"]] += event["args"].values()
    held = [max(counters[worker, "memory"]) for worker in range(4)]
    assert held == list(plan.peak_bytes)
    links = {name: values for (process, name), values in counters.items() if process == 4}
    assert set(links) == {"outer: bytes per second", "inner: bytes per second"}
    # Four workers receive over each level at most.
    assert 0 < max(links["outer: bytes per second"]) <= 4e9 * (1 + 1e-9)
    assert all(values[-1] == pytest.approx(0, abs=1) for values in links.values())


def checked(content: Any) -> list[dict[str, Any]]:
    """The complete events of a trace, held against the fields that the format documents."""
    assert set(content) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert content["displayTimeUnit"] in ("ms", "ns")
    complete = []
    for event in content["traceEvents"]:
        assert isinstance(event["name"], str)
        assert isinstance(event["args"], dict)
        assert all(type(event[key]) is int and event[key] >= 0 for key in ("pid", "tid"))
        if event["ph"] == "M":
            wanted = {"process_name": "name", "thread_name": "name"}.get(event["name"], "sort_index")
            assert set(event["args"]) == {wanted}
        elif event["ph"] in "Csf":
            assert event["ts"] >= 0
            assert ("id" in event) == (event["ph"] != "C")
            assert all(isinstance(value, int | float) for value in event["args"].values())
        else:
            assert event["ph"] == "X"
            assert isinstance(event["cat"], str)
            assert all(isinstance(event[key], int | float) and event[key] >= 0 for key in ("ts", "dur"))
            complete.append(event)
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for event in complete:
        tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert tracks
    for spans in tracks.values():
        for (_, end), (start, _) in pairwise(sorted(spans)):
            assert start >= end - 1e-6 * max(1.0, end), "complete events of a thread nest or follow each other"
    return complete


def test_the_page_of_a_plan_for_time_compares_times(tmp_path: Path) -> None:
    write_model(build("mlp-5x300", batch=32), tmp_path / "m.onnx")
    planned = api.plan(tmp_path / "m.onnx", topology="p2.8xlarge", gpus=2, effort="quick", out=tmp_path / "plan")
    assert planned.plan.estimate is not None
    assert planned.beside is not None
    assert planned.beside.data_seconds is not None
    api.report(tmp_path / "plan", output=tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text()
    price, data = map(format_seconds, (planned.plan.estimate.estimated_seconds, planned.beside.data_seconds))
    assert f"the plan takes {price} a step on p2.8xlarge, 2 of 8 devices, estimated" in page
    assert f"than data parallelism, which takes {data}." in page
    beside = page[page.index('<section id="beside"') : page.index('<section id="network"')]
    assert f">{price}</td>" in beside
    assert f">{data}</td>" in beside
    assert "lower bound" not in beside, "that is of bytes"


def test_a_plan_is_simulated_unless_it_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(build("mlp-2x8", batch=4), tmp_path / "m.onnx")
    planned = api.plan(tmp_path / "m.onnx", topology="dgx-h100", gpus=2, strategy="data", out=tmp_path / "plan")
    assert planned.simulated_seconds == api.simulate(tmp_path / "plan").simulated_seconds
    monkeypatch.setattr(Work.SIMULATION, "most_parts", 2 * len(opened(tmp_path / "plan").ops) - 1)
    again = api.plan(
        tmp_path / "m.onnx", topology="dgx-h100", gpus=2, strategy="data", out=tmp_path / "plan", force=True
    )
    assert again.simulated_seconds is None


def test_a_page_of_a_plan_that_moves_nothing(tmp_path: Path) -> None:
    write_model(build("mlp-2x8", batch=4), tmp_path / "m.onnx")
    planned = api.plan(tmp_path / "m.onnx", topology="dgx-h100", gpus=2, effort="quick", out=tmp_path / "plan")
    assert planned.plan.moved_bytes == 0
    api.report(tmp_path / "plan", output=tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text()
    assert "There are no ribbons, for nothing moves here." in page
    assert "other ops move the rest" not in page
    assert "Nothing moves over its links." in page
    footer = page[page.index("<footer>") :]
    assert f"tofu plan {tmp_path / 'm.onnx'} --gpus 2 --topology dgx-h100 --effort quick</code>" in footer


def test_a_page_says_where_it_comes_from(folder: Path, tmp_path: Path) -> None:
    api.report(folder, output=tmp_path / "p.html")
    page, plan = (tmp_path / "p.html").read_text(), plan_of(folder)
    footer = page[page.index("<footer>") :]
    assert plan.model_digest in footer
    assert f"by tofu {planner.__version__}" in footer
    assert f"tofu report {folder} -o {tmp_path / 'p.html'}" in footer
    assert f"the plan takes {format_bytes(plan.cost)} a step, moved and penalty" in page


def test_layers_add_up_to_the_estimate_with_equal_ones_in_one_row(tmp_path: Path) -> None:
    write_model(build("mlp-5x300", batch=32), tmp_path / "m.onnx")
    api.plan(tmp_path / "m.onnx", topology="p2.8xlarge", out=tmp_path / "plan")
    plan = opened(tmp_path / "plan")
    program = load_plan(tmp_path / "plan", silent).program
    schedule = times_of(plan, program).schedule
    assert schedule is not None
    tensor_bytes = plan.folder.plan.tensor_bytes
    rows = layers(plan.graph, plan.ops, CostTables(), tensor_bytes, schedule)
    assert sum(row.total for row in rows) == pytest.approx(schedule.estimate.estimated_seconds)
    sums = [sum(len(row.names) * row.each[part] for row in rows) for part in range(len(PARTS))]
    assert sum(sums[:3]) == pytest.approx(schedule.estimate.compute_seconds)
    assert all(amount > 0 for amount in sums), "each pass computes"
    in_bytes = layers(plan.graph, plan.ops, CostTables(), tensor_bytes, None)
    assert sum(len(row.names) * row.each[-1] for row in in_bytes) == plan_of(tmp_path / "plan").moved_bytes


def test_a_plan_command_makes_the_plan_again(tmp_path: Path) -> None:
    write_model(build("mlp-2x24", batch=36), tmp_path / "m.onnx")
    words = f"tofu plan {tmp_path / 'm.onnx'} --gpus 2 --memory 1048576B"
    words += " --rates link=450GB/s,memory=3.35TB/s,compute=60TFLOP/s --pin 'w1=S(0)/2'"
    words += " --forbid 'x*=S(1)' --share none --recompute all --effort quick"
    words += f" --time 1h --opdefs {tmp_path / 'own.py'}"
    described = '@op("Twice", domain="my.own")\ndef twice(node, A):\n    return lambda i: call("twice", A[i])\n'
    (tmp_path / "own.py").write_text("from planner.tdl.builder import call, op\n\n" + described)
    ask = {
        "gpus": 2,
        "memory": 1 << 20,
        "rates": "link=450GB/s,memory=3.35TB/s,compute=60TFLOP/s",
        "pin": {"w1": "S(0)/2"},
        "forbid": [("x*", "S(1)")],
        "share": "none",
        "recompute": "all",
        "effort": "quick",
        "time": "1h",
        "opdefs": tmp_path / "own.py",
    }
    first = api.plan(tmp_path / "m.onnx", out=tmp_path / "plan", **ask)  # type: ignore[arg-type]  # of several kinds
    api.report(tmp_path / "plan", output=tmp_path / "p.html")
    (command,) = re.findall(r'class="command">(tofu plan .*?)</code>', (tmp_path / "p.html").read_text())
    assert html.unescape(command) == words
    assert main([*shlex.split(words)[1:], "-o", str(tmp_path / "again")]) == 0
    assert plan_of(tmp_path / "again").tilings == first.plan.tilings


@pytest.mark.parametrize(
    ("name", "text"), [("gpt-1x128-4h-lm", "16,384 tokens a second"), ("resnet-50", "16 images a second")]
)
def test_a_rate_is_of_tokens_or_of_images(name: str, text: str) -> None:
    graph = build(name, batch=8)
    sizes = [graph.tensors[tensor].elements for tensor in graph.inputs if tensor == "tokens"]
    assert rate(graph, max(sizes, default=8) / int(text.split()[0].replace(",", ""))) == text


def test_the_share_of_the_peak_is_of_operations_that_are_counted_once() -> None:
    graph = build("mlp-1x64", batch=32)
    ops = [bound for bound in opdefs.standard().bind_all(graph) if bound.op.op_type in ("Gemm", "MatMul")]
    device = Device(1, ((DType.FLOAT32, 1e9),))
    products = 2 * 64 * 64 * 32 * len(ops)
    assert peak_share(ops, [device, device], 1.0) == pytest.approx(products / 2e9, rel=0.05)
    assert peak_share(ops, [Device(1)], 1.0) is None


def test_results_that_take_much_of_the_peak_have_a_hint(tmp_path: Path) -> None:
    write_model(build("gpt-1x128-4h-lm", batch=2), tmp_path / "m.onnx")
    api.plan(tmp_path / "m.onnx", gpus=2, effort="quick", out=tmp_path / "plan")
    api.report(tmp_path / "plan", output=tmp_path / "p.html")
    assert re.search(r"head.y is an output, so it is held .*: [\d.]+% of the peak", (tmp_path / "p.html").read_text())


def test_memory_is_as_planned_on_every_worker_and_has_its_parts(folder: Path) -> None:
    plan = opened(folder)
    program = load_plan(folder, silent).program
    memory = memory_of_page(program, plan.graph, levels(program.workers))
    assert tuple(usage.total_bytes for usage in memory) == plan_of(folder).peak_bytes
    assert all(usage.total_bytes == usage.held_bytes.max() for usage in memory), (
        "the most that is drawn is what is planned"
    )
    alone = [occupancy(program, plan.graph, worker).held_bytes for worker in range(4)]
    assert all((usage.held_bytes == held_bytes).all() for usage, held_bytes in zip(memory, alone, strict=True))
    assert list(memory[0].begins) == ["backward", "update"]
    assert all(0 < usage.begins["backward"] < usage.begins["update"] < len(usage.held_bytes) for usage in memory)


@pytest.mark.parametrize("is_shipped", [True, False])
def test_a_plan_for_a_part_of_a_machine_has_a_trace(is_shipped: bool, tmp_path: Path) -> None:
    write_model(build("mlp-5x300", batch=32), tmp_path / "m.onnx")
    (tmp_path / "four.yaml").write_text(FOUR)
    machine = "dgx-h100" if is_shipped else str(tmp_path / "four.yaml")
    api.plan(tmp_path / "m.onnx", topology=machine, gpus=2, objective="bytes", out=tmp_path / "plan")
    result = api.report(tmp_path / "plan", trace=tmp_path / "t.json", output=tmp_path / "p.html")
    assert result.left_out == ()
    assert checked(json.loads((tmp_path / "t.json").read_text()))


def test_without_its_topology_a_page_says_what_it_lacks_and_a_trace_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tmp_path / "plan"
    shutil.copytree(folder, plan)
    (plan / "topology.yaml").write_text(FOUR.replace("1TFLOP/s", "2TFLOP/s"))
    with pytest.raises(ModelError, match="do not belong together"):
        api.report(plan, output=tmp_path / "p.html")
    # A folder as version 0.1.0 wrote it. What a plan calls its topology is no path, though a file of that name is here.
    manifest = json.loads((plan / "manifest.json").read_text())
    del manifest["files"]["topology.yaml"]
    (plan / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "four").write_text(FOUR)
    monkeypatch.chdir(tmp_path)
    result = api.report(plan, output=tmp_path / "p.html")
    assert len(result.left_out) == 1
    assert "the plan is for 'four', which does not ship with tofu; plan the model again" in result.left_out[0]
    with pytest.raises(UsageError, match=r"-o .*t.json: the plan is for 'four', which does not ship") as caught:
        api.report(plan, trace=tmp_path / "t.json")
    assert caught.value.hint == "plan the model again, with --topology"
    assert not (tmp_path / "t.json").exists()


def test_what_is_refused(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(UsageError, match="holds no plan"):
        api.report(tmp_path, output=tmp_path / "p.html")
    with pytest.raises(UsageError, match="there is no folder"):
        api.report(folder, output=tmp_path / "no" / "p.html")
    api.plan(hostile_model(tmp_path), gpus=2, out=tmp_path / "plan")
    with pytest.raises(UsageError, match=r"-o .*t.json: the plan in .* is for no topology") as caught:
        api.report(tmp_path / "plan", trace=tmp_path / "t.json")
    assert "tofu plan --topology" in caught.value.hint
    assert not (tmp_path / "p.html").exists()


def test_what_was_measured_of_another_plan_is_refused(folder: Path, tmp_path: Path) -> None:
    api.plan(hostile_model(tmp_path), gpus=2, out=tmp_path / "plan")
    (tmp_path / "plan" / "measured.json").write_bytes((folder / "measured.json").read_bytes())
    with pytest.raises(ModelError, match=r"measured\.json is of another plan"):
        api.report(tmp_path / "plan", output=tmp_path / "p.html")
    (tmp_path / "plan" / "measured.json").write_text("{}")
    with pytest.raises(ModelError, match=r"measured\.json cannot be read: it lacks 'schema_version'"):
        api.report(tmp_path / "plan", output=tmp_path / "p.html")


FAULTS = {"pieces": 2**62, "workers": 99, "region": -1}


@pytest.mark.parametrize("name", FAULTS)
def test_a_plan_whose_fetches_have_other_numbers_is_refused(name: str, folder: Path, tmp_path: Path) -> None:
    """As a run refuses it; so by the pages of memory and time, which read the same program."""
    plan = shutil.copytree(folder, tmp_path / "plan")
    file, manifest = plan / "worker0.onnx", plan / "manifest.json"
    model = onnx.load(file)
    fetch = next(node for node in model.graph.node if node.op_type == "Fetch")
    (numbers,) = (attribute.ints for attribute in fetch.attribute if attribute.name == name)
    numbers[-1] = FAULTS[name]
    onnx.save(model, file)
    stated = json.loads(manifest.read_text())
    stated["files"][file.name] = digest(file.read_bytes())
    manifest.write_text(json.dumps(stated))
    message = "the partitioned program is inconsistent" if name == "workers" else "has attributes that do not agree"
    with pytest.raises(ModelError, match=message):
        api.report(plan, output=tmp_path / "plan.html")


def test_open_shows_the_page_in_a_browser(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_pages: list[str] = []
    monkeypatch.setattr("click.launch", lambda address: opened_pages.append(address))
    assert main(["report", str(folder), "--open"]) == 0
    assert opened_pages == [(folder / "report.html").resolve().as_uri()]
    assert main(["report", str(folder), "--open", "-o", str(tmp_path / "p.html")]) == 0
    assert opened_pages[1:] == [(tmp_path / "p.html").resolve().as_uri()]
    (folder / "report.html").unlink()
