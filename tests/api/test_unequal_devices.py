"""Plans for devices of several kinds: parts in proportion, runs of these, memory of each device."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from planner import api
from planner.artifacts.plan import Plan
from planner.graph.to_onnx import write_model
from planner.zoo import build

MACHINE = """\
name: {name}
device: {{memory: 1GiB, compute: {{float32: 10GFLOP/s}}, memory_bandwidth: 40GB/s}}
devices: [{devices}]
switches: [host]
links: [{links}]
"""
FAST = ", compute: {float32: 20GFLOP/s}, memory_bandwidth: 80GB/s"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def machine(*kinds: str) -> Path:
    """A topology file of devices, each with what is its own."""
    devices = ", ".join(f"{{id: {number}{kind}}}" for number, kind in enumerate(kinds))
    links = ", ".join(f"{{between: [{number}, host], bandwidth: 50GB/s}}" for number in range(len(kinds)))
    path = Path("mixed.yaml")
    path.write_text(MACHINE.format(name="mixed", devices=devices, links=links))
    return path


def planned(network: str, batch: int, topology: Path, memory: str | None = None) -> Plan:
    write_model(build(network, batch=batch), Path("m.onnx"))
    return api.plan(Path("m.onnx"), topology=str(topology), out=Path("p"), effort="quick", memory=memory).plan


def seconds_on_one(network: str, batch: int, kind: str) -> float:
    """Of a network's step on one device of a kind."""
    write_model(build(network, batch=batch), Path("m.onnx"))
    plan = api.plan(Path("m.onnx"), topology=str(machine(kind)), out=Path("one")).plan
    assert plan.estimate is not None
    return plan.estimate.estimated_seconds


def test_a_fast_device_gets_twice_the_part_of_a_slow_one_and_the_run_is_right() -> None:
    alone = seconds_on_one("mlp-2x128", 256, FAST)
    plan = planned("mlp-2x128", 256, machine("", FAST, ""))
    assert plan.estimate is not None
    assert plan.estimate.estimated_seconds <= 1.05 * alone / 2  # all three are worth two of it
    assert plan.slowest_share < 1.2  # an even share would be half as long again on the fast one
    [shares] = {found for tiling in plan.tilings.values() for found in re.findall(r"\(([\d:]*:\d+)\)", str(tiling))}
    assert [int(share) for share in shares.split(":")] == [1 + (device == 1) for device in plan.estimate.devices]
    found = api.run(Path("p"), steps=2, verify=True)
    assert found.verified
    assert found.moved_bytes == plan.moved_bytes


def test_two_of_each_kind_are_parted_by_one_cut() -> None:
    plan = planned("mlp-2x128", 256, machine(FAST, "", FAST, ""))
    assert plan.cuts == (2, 2)
    assert plan.estimate is not None
    assert sorted(plan.estimate.devices[:2]) == [0, 2]
    assert api.run(Path("p"), steps=1, verify=True).verified


@pytest.mark.slow
def test_each_worker_fits_its_own_device() -> None:
    free = planned("mlp-2x128", 256, machine(f"{FAST}, memory: 1GiB", "", ""))
    small = int(0.9 * max(free.peak_bytes))
    Path("p").rename("free")
    plan = planned("mlp-2x128", 256, machine(f"{FAST}, memory: {small}B", "", ""))
    assert plan.estimate is not None
    fast = plan.estimate.devices.index(0)
    assert plan.peak_bytes[fast] <= small
    assert [api.memory(Path("p"), worker=worker).limit_bytes for worker in range(3)] == [
        small if worker == fast else 1 << 30 for worker in range(3)
    ]
    assert api.run(Path("p"), steps=1, verify=True).verified
