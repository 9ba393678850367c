"""Topology files: what is read, and what is refused with its line."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import configs
from planner.errors import UsageError, did_you_mean
from planner.graph.core.model import DType
from planner.machine.topology_file import (
    Device,
    DeviceGraph,
    DeviceLink,
    Efficiency,
    Level,
    Topology,
    load_topology,
    parse_topology,
    shipped_topology,
)

GOOD = """\
name: two boxes
device: {memory: 16GiB, compute: {float32: 10TFLOP/s, float16: 80TFLOP/s}}
levels:
  - {name: network, ways: 2, bandwidth: 1GB/s, latency: 20us}
  - {name: nvlink, ways: 3, bandwidth: 50GB/s}
"""


def test_reads_levels() -> None:
    topology = parse_topology(GOOD, "boxes.yaml")
    assert topology == Topology(
        name="two boxes",
        device=Device(16 * 2**30, ((DType.FLOAT32, 10e12), (DType.FLOAT16, 80e12)), None),
        levels=(Level("network", 2, 1e9, 20e-6), Level("nvlink", 3, 50e9, 0.0)),
    )
    assert topology.device_count == 6
    assert dict(topology.device.compute_flop_per_s)[DType.FLOAT16] == 80e12
    assert DType.INT8 not in dict(topology.device.compute_flop_per_s)


GPU = GOOD.replace("float16: 80TFLOP/s}", "float16: 80TFLOP/s}, efficiency: {compute: 66%, memory: 0.8}, launch: 21us")


def test_reads_what_kernels_attain_and_what_a_launch_takes() -> None:
    plain, device = (parse_topology(text, "boxes.yaml").devices[0] for text in (GOOD, GPU))
    assert (plain.efficiency, plain.launch_seconds) == (Efficiency(1.0, 1.0), None)
    assert (device.efficiency, device.launch_seconds) == (Efficiency(0.66, 0.8), 21e-6)
    assert plain.speed != device.speed
    assert device.speed == replace(device, memory_bytes=1, compute_flop_per_s=device.compute_flop_per_s[::-1]).speed


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("66%", "106%", "device.efficiency.compute: must be at most 100%"),
        ("66%", "0%", "device.efficiency.compute: must be more than zero"),
        (", memory: 0.8", "", "device.efficiency: the key 'memory' is missing"),
        ("21us", "21", "device.launch: '21' "),
    ],
)
def test_shares_and_launches_are_refused_with_line(old: str, new: str, finding: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_topology(GPU.replace(old, new), "boxes.yaml")
    assert any(fact.startswith(f"line 2: {finding}") for fact in caught.value.facts), caught.value.facts


GRAPH = """\
name: three
source: invented
device: {memory: 16GB, compute: {float32: 10TFLOP/s}, memory_bandwidth: 700GB/s}
devices: [{id: 0}, {id: 2, memory: 24GB}, {id: 1, compute: {float32: 20TFLOP/s}}]
switches: [host]
links:
  - {between: [0, 1], bandwidth: 20GB/s, latency: 3us}
  - {between: [1, host], bandwidth: 16GB/s}
  - {between: [host, 2], bandwidth: 8GB/s, latency: 1us}
"""


def test_reads_a_device_graph() -> None:
    speed = ((DType.FLOAT32, 10e12),)
    assert parse_topology(GRAPH, "three.yaml") == DeviceGraph(
        name="three",
        source="invented",
        devices=(
            Device(16 * 10**9, speed, 700e9),
            Device(16 * 10**9, ((DType.FLOAT32, 20e12),), 700e9),
            Device(24 * 10**9, speed, 700e9),
        ),
        switches=("host",),
        links=(DeviceLink((0, 1), 20e9, 3e-6), DeviceLink((1, 3), 16e9), DeviceLink((3, 2), 8e9, 1e-6)),
    )


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("[0, 1]", "[0, 3]", "line 7: links[0].between: there is no device 3"),
        ("[host, 2]", "[hots, 2]", "line 9: links[2].between: there is no switch 'hots'; did you mean 'host'?"),
        ("[host, 2]", "[2, 2]", "line 9: links[2].between: a link to itself"),
        ("[host, 2]", "[2]", "line 9: links[2].between: expected two devices or switches, found 1"),
        ("[host, 2]", "[1, 0]", "line 9: links[2]: these two are linked already"),
        ("[1, host]", "[0, host]", ""),
        (
            "  - {between: [1, host], bandwidth: 16GB/s}\n",
            "",
            "line 7: links: no way leads from device 0 to device 2, sw",
        ),
        ("{id: 0}", "{id: 1}", "line 4: devices[2].id: 1 is there twice"),
        ("{id: 0}", "{id: 7}", "line 4: devices[0].id: 7 is beyond the last of 3 devices, counted from 0"),
        ("{id: 0}", "{memory: 1GB}", "line 4: devices[0]: the key 'id' is missing"),
        ("{id: 0}", "{id: 0, speed: 1}", "line 4: devices[0]: unknown key 'speed'"),
        (
            "device: {memory: 16GB, compute: {float32: 10TFLOP/s}, memory_bandwidth: 700GB/s}\n",
            "",
            "line 3: devices[0]:",
        ),
        ("[host]", "[host, host]", "line 5: switches[1]: 'host' is there twice"),
    ],
)
def test_device_graphs_are_refused_with_line_and_advice(old: str, new: str, finding: str) -> None:
    assert old in GRAPH
    text = GRAPH.replace(old, new, 1)
    if not finding:
        parse_topology(text, "three.yaml")
        return
    with pytest.raises(UsageError) as caught:
        parse_topology(text, "three.yaml")
    assert any(fact.startswith(finding) for fact in caught.value.facts), caught.value.facts


def test_one_device_has_no_levels() -> None:
    topology = parse_topology("{name: laptop, device: {memory: 4GiB}, levels: []}", "one.yaml")
    assert topology.device_count == 1


def test_the_papers_machine_ships() -> None:
    topology = load_topology("p2.8xlarge")
    assert topology.device_count == 8
    assert topology.device.memory_bytes == 12 * 2**30
    assert [(level.name, level.ways, level.bandwidth_bytes_per_s) for level in topology.levels] == [
        ("socket", 2, 10e9),
        ("pcie", 4, 21e9),
    ]


@pytest.mark.parametrize("name", configs.names())
def test_every_shipped_file_is_good_and_names_its_source(name: str) -> None:
    topology = load_topology(name)
    assert topology.name == name
    assert topology.source
    for device in topology.devices:
        assert device.memory_bytes
        assert dict(device.compute_flop_per_s)[DType.FLOAT32]
        assert device.memory_bandwidth_bytes_per_s
        assert (device.launch_seconds is None) == (name in ("p2.8xlarge", "icml18-p100")), "no paper states a launch"


def test_a_shipped_name_is_no_path() -> None:
    with pytest.raises(KeyError):
        configs.find("../pyproject")


def test_unknown_name_lists_what_ships() -> None:
    with pytest.raises(UsageError) as caught:
        load_topology("p2.8xlrage")
    assert "p2.8xlarge" in caught.value.facts[0]
    assert caught.value.hint == "did you mean 'p2.8xlarge'?"


def test_what_a_plan_calls_its_topology_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    assert load_topology("mine").device_count
    for name in ("mine", "./mine", str(tmp_path / "mine"), "/dev/zero", "../p2.8xlarge"):
        with pytest.raises(UsageError, match="no topology of that name ships"):
            shipped_topology(name)
    assert shipped_topology("p2.8xlarge").device_count == 8


@pytest.mark.parametrize("path", ["missing.yaml", "./missing"])
def test_a_path_that_is_not_there(path: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        load_topology(tmp_path / path)


def test_a_directory_and_a_binary_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Is a directory"):
        load_topology(tmp_path)
    binary = tmp_path / "model.yaml"
    binary.write_bytes(b"name: \xff\xfe")
    with pytest.raises(UsageError, match="byte 6 is not UTF-8"):
        load_topology(str(binary))


def _with(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (_with("bandwidth: 1GB/s", "bandwith: 1GB/s"), "line 4: levels[0]: unknown key 'bandwith'; did you mean 'ban"),
        (_with("bandwidth: 1GB/s", "x: 1"), "line 4: levels[0]: the key 'bandwidth' is missing"),
        (_with("name: two", "speed: 1\nname: two"), "line 1: the file: unknown key 'speed'; known are name, device"),
        (GOOD + "name: again\n", "line 6: the file: the key 'name' was given before, on line 1"),
        (_with("ways: 2", "ways: 2, ways: 4"), "line 4: levels[0]: the key 'ways' was given before, on line 4"),
        (_with("ways: 2", "ways: two"), "line 4: levels[0].ways: expected a whole number from 1, found text"),
        (_with("ways: 2", "ways: 0"), "line 4: levels[0].ways: expected a whole number from 1, found a whole number 0"),
        (_with("ways: 2", "ways: -2"), "line 4: levels[0].ways: expected a whole number from 1"),
        (_with("ways: 2", "ways: 2.0"), "line 4: levels[0].ways: expected a whole number from 1, found a number 2.0"),
        (_with("ways: 2", "ways: 010"), "line 4: levels[0].ways: expected a whole number from 1"),
        (_with("ways: 2", "ways: yes"), "line 4: levels[0].ways: expected a whole number from 1, found a truth value"),
        (_with("ways: 2", "ways: .nan"), "line 4: levels[0].ways: expected a whole number from 1, found a number .nan"),
        (_with("ways: 2", "ways: 99999999"), "line 4: levels: their ways multiply to more than 1,048,576 devices"),
        (_with("1GB/s", ".nan"), "line 4: levels[0].bandwidth: '.nan' is not a bandwidth such as 21GB/s"),
        (_with("1GB/s", "-1GB/s"), "line 4: levels[0].bandwidth: '-1GB/s' is negative"),
        (_with("1GB/s", "0GB/s"), "line 4: levels[0].bandwidth: must be more than zero"),
        (_with("1GB/s", "1GB"), "line 4: levels[0].bandwidth: '1GB' has the unknown unit 'GB'; did you mean GB/s?"),
        (_with("1GB/s", "1000"), "line 4: levels[0].bandwidth: '1000' has no unit"),
        (_with("1GB/s", "[1GB/s]"), "line 4: levels[0].bandwidth: expected a number with a unit, found a list"),
        (_with("16GiB", ""), "line 2: device.memory: '' is not a number of bytes"),
        (_with("16GiB", "0.1B"), "line 2: device.memory: '0.1B' is not a whole number of bytes"),
        (_with("float32", "flaot32"), "line 2: device.compute: unknown key 'flaot32'; did you mean 'float32'?"),
        (_with("two boxes", "2.8"), "line 1: name: expected text, found a number; in quotes it is text: '2.8'"),
        (_with("two boxes", "no"), "line 1: name: expected text, found a truth value"),
        (_with("two boxes", "''"), "line 1: name: is empty"),
        (_with("name: nvlink", "name: network"), "line 5: levels: the name 'network' is taken by the level of line 4"),
        (_with("  - {name: nvlink", "  - {? [a] : 1, name: nvlink"), "line 5: levels[1]: a key must be a name"),
        ("- 1\n", "line 1: the file: expected keys and values, found a list"),
        ("name: a\ndevice: 3\nlevels: 4\n", "line 3: levels: expected a list, found a whole number"),
        ("name: a\n<<: {b: 1}\n", "line 2: the file: unknown key '<<'"),
        (
            _with("latency: 20us", "shared_by: 2"),
            "line 4: levels[0].shared_by: a group of this level has 3 devices, and 2",
        ),
        ("name: !!python/object/apply:os.system [ls]\n", "line 1: a tag (tag:yaml.org,2002:python/object/apply"),
        ("name: !!str 5\n", "line 1: a tag (tag:yaml.org,2002:str)"),
        ("a: &a [1]\nb: *a\n", "line 1: an anchor (&a)"),
        ("a: *nobody\n", "line 1: an alias (*nobody)"),
        ("name: a\n---\nname: b\n", "line 2: a second document"),
        ("a: " + "[" * 100_000, "line 1: more than 16 levels of nesting"),
        ("name: [a\n", "line 2: expected ',' or ']'"),
        ("name:\tx: y\n\t- z", "line "),
    ],
)
def test_refused_with_line_and_advice(text: str, finding: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_topology(text, "boxes.yaml")
    assert caught.value.what.startswith("boxes.yaml: ")
    assert any(fact.startswith(finding) for fact in caught.value.facts), caught.value.facts


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "b.yaml: the file is empty"),
        ("# nothing\n", "b.yaml: the file is empty"),
        ("name: \x00", "b.yaml: not YAML: it holds the character '\\x00'"),
        ("#" * 1_000_001, "b.yaml: too long for a topology (1,000,001 characters)"),
    ],
)
def test_refused_as_a_whole(text: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_topology(text, "b.yaml")
    assert caught.value.what == what


def test_alias_bomb_is_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    with pytest.raises(UsageError, match="beyond what a topology needs") as caught:
        parse_topology("\n".join(lines), "bomb.yaml")
    assert len(caught.value.facts) == 10


def test_all_findings_at_once_in_order() -> None:
    text = GOOD.replace("16GiB", "16Gib").replace("ways: 2", "ways: none").replace("50GB/s", "fast")
    with pytest.raises(UsageError) as caught:
        parse_topology(text, "boxes.yaml")
    assert [fact.split(":")[0] for fact in caught.value.facts] == ["line 2", "line 4", "line 5"]
    assert str(caught.value).startswith("boxes.yaml: not a usable topology\n  line 2: device.memory: '16Gib' has")


@given(st.text(max_size=200))
def test_no_text_is_a_crash(text: str) -> None:
    with pytest.raises(UsageError):
        parse_topology(text, "any.yaml")


@given(
    cut=st.integers(0, len(GOOD)),
    drop=st.integers(0, 6),
    put=st.text(alphabet="{}[]:,-&*!?|>'\"%@`# \n\t0aB/", max_size=4),
)
def test_no_damage_is_a_crash(cut: int, drop: int, put: str) -> None:
    damaged = GOOD[:cut] + put + GOOD[cut + drop :]
    with contextlib.suppress(UsageError):
        parse_topology(damaged, "any.yaml")


def test_did_you_mean_nothing_near() -> None:
    assert did_you_mean("zzz", ("name", "device")) == ""
    assert did_you_mean("Name", ("name", "device")) == "did you mean 'name'?"


def test_advice_is_for_findings_that_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error shows twenty findings; the search for a near name is slow."""
    searches: list[str] = []
    monkeypatch.setattr("difflib.get_close_matches", lambda name, *_, **__: searches.append(name) or [])
    keys = "".join(f"key{number}: 1\n" for number in range(3_000))
    with pytest.raises(UsageError) as caught:
        parse_topology(GOOD + keys, "boxes.yaml")
    assert len(caught.value.facts) == 3_000
    assert len(searches) == 20
