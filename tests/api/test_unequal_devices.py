"""Plans for devices of several kinds: parts in proportion, runs of these, memory of each device."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from planner import api, opdefs
from planner.artifacts.asked import ByWorker
from planner.artifacts.estimate import TimeEstimate
from planner.artifacts.plan import Plan
from planner.cost.residence import Residence
from planner.features.zoo.models import build
from planner.features.zoo.models.transformer import GptShape, gpt
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import write_model
from planner.options import ReadOptions
from planner.options.planning import PlanOptions
from planner.planning.limit.trial import Trial
from planner.planning.machines import memory_limits, target_of, time_of
from planner.planning.request import ModelSource, PlanRequest
from planner.planning.session import Session
from run_plan import run_plan
from same_bits import loaded

MACHINE: Final = """\
name: mixed
devices: [{devices}]
switches: [host]
links: [{links}]
"""


@dataclass(frozen=True)
class Kind:
    """A device."""

    gflop_per_s: int
    """Of float32; its memory moves four bytes for each."""
    memory: str = "1GiB"


FAST, SLOW = Kind(20), Kind(10)
NETWORKS: Final[dict[str, Callable[[], Graph]]] = {
    "mlp": lambda: build("mlp-2x128", batch=256),
    "lenet-5": lambda: build("lenet-5", batch=64),
    "gpt": lambda: gpt("gpt", GptShape(1, 32, 2, 32), batch=64),
}
"""Each with at least 64 samples."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def machine(kinds: Iterable[Kind]) -> str:
    """A topology file of devices that are all equally near."""
    listed = list(kinds)
    devices = ", ".join(
        f"{{id: {number}, memory: {kind.memory}, compute: {{float32: {kind.gflop_per_s}GFLOP/s}},"
        f" memory_bandwidth: {4 * kind.gflop_per_s}GB/s}}"
        for number, kind in enumerate(listed)
    )
    links = ", ".join(f"{{between: [{number}, host], bandwidth: 50GB/s}}" for number in range(len(listed)))
    Path("mixed.yaml").write_text(MACHINE.format(devices=devices, links=links))
    return "mixed.yaml"


@dataclass(frozen=True)
class Found:
    """The search's own plan of a graph on a machine, beside no other strategy's."""

    trial: Trial
    estimate: TimeEstimate
    limits: ByWorker | tuple[int, ...]
    """Of each worker."""

    @property
    def seconds(self) -> float:
        return self.estimate.estimated_seconds

    @property
    def shares(self) -> set[str]:
        return shares_in(self.trial.decided.tilings.values())

    @property
    def peaks(self) -> tuple[int, ...]:
        return self.trial.partitioned.program.peak_bytes


def found(graph: Graph, *kinds: Kind) -> Found:
    target = target_of(None, machine(kinds))
    assert target.machine is not None
    limits = memory_limits(None, target.machine, target.workers)
    assert limits is not None
    source = ModelSource(Path(), ReadOptions(), opdefs.standard(), None, make=lambda: graph)
    options = PlanOptions(model=source.model, effort="quick", recompute="none")
    trial = Session(PlanRequest(options, source, target, limits)).planned_beside(())
    return Found(trial, time_of(trial, target.machine), limits)


def ideal_seconds(graph: Graph, *kinds: Kind) -> float:
    """On one device that is worth all of them: the ideal proportional split."""
    return found(graph, Kind(sum(kind.gflop_per_s for kind in kinds))).seconds


def assert_runs(graph: Graph, plan: Found) -> None:
    """In this process: its results are right, and it moves what is predicted."""
    run = run_plan(loaded(graph, plan.trial.decided), verify=True)
    assert run.verified
    assert run.moved_bytes == plan.trial.decided.moved_bytes


def shares_in(tilings: Iterable[object]) -> set[str]:
    return {one for tiling in tilings for one in re.findall(r"\(([\d:]*:\d+)\)", str(tiling))}


def planned(network: str, batch: int, topology: str) -> Plan:
    write_model(build(network, batch=batch), Path("m.onnx"))
    return api.plan(Path("m.onnx"), topology=topology, out=Path("p"), effort="quick").plan


def test_a_fast_device_gets_twice_the_part_of_a_slow_one_and_the_run_is_right() -> None:
    plan = planned("mlp-2x128", 256, machine((SLOW, Kind(20, "480KiB"), SLOW)))
    assert plan.estimate is not None
    assert plan.slowest_share < 1.2  # an even share would be half as long again on the fast one
    [shares] = shares_in(plan.tilings.values())
    assert [int(share) for share in shares.split(":")] == [1 + (device == 1) for device in plan.estimate.devices]
    limits = [480 << 10 if device == 1 else 1 << 30 for device in plan.estimate.devices]
    assert [api.memory(Path("p"), worker=worker).limit_bytes for worker in range(3)] == limits
    run = api.run(Path("p"), steps=2, verify=True)
    assert run.verified
    assert run.moved_bytes == plan.moved_bytes


@pytest.mark.parametrize("network", NETWORKS)
def test_one_fast_device_and_two_slow_ones_take_the_time_of_the_ideal_proportional_split(network: str) -> None:
    graph = NETWORKS[network]()
    plan = found(graph, SLOW, FAST, SLOW)
    assert plan.seconds <= 1.05 * ideal_seconds(graph, SLOW, FAST, SLOW)
    assert plan.shares == {"1:1:2"}
    assert_runs(graph, plan)


@pytest.mark.parametrize(
    ("network", "large", "small"), [("mlp", 420, 340), ("lenet-5", 1700, 860), ("gpt", 4000, 2100)]
)
def test_four_kinds_of_two_memories_take_that_time_within_the_memory_of_each(
    network: str, large: int, small: int
) -> None:
    graph = NETWORKS[network]()
    kinds = (Kind(40, f"{large}KiB"), Kind(30, f"{large}KiB"), Kind(20, f"{small}KiB"), Kind(10, f"{small}KiB"))
    plan = found(graph, *kinds)
    assert plan.seconds <= 1.05 * ideal_seconds(graph, *kinds)
    assert plan.shares == {"4:3:2:1"}
    assert sum(plan.peaks) / 4 > small << 10, "in even parts it would not fit"
    assert all(peak <= limit for peak, limit in zip(plan.peaks, plan.limits, strict=True))
    assert_runs(graph, plan)


def test_a_fast_device_with_little_memory_holds_less_and_still_computes_more() -> None:
    graph = NETWORKS["mlp"]()
    plan = found(graph, SLOW, Kind(20, "300KiB"), SLOW)
    assert min(plan.limits) == 300 << 10 < max(found(graph, SLOW, FAST, SLOW).peaks)
    assert all(peak <= limit for peak, limit in zip(plan.peaks, plan.limits, strict=True))
    assert plan.seconds <= 1.1 * ideal_seconds(graph, SLOW, FAST, SLOW)
    decided = plan.trial.decided
    held = Residence(decided.graph, decided.ops, plan.limits).of(decided)
    assert 0 < held.max() <= sum(plan.limits), "what fits is never refused by what it is worth"
    assert_runs(graph, plan)


def test_two_of_each_kind_are_parted_by_one_cut() -> None:
    plan = found(NETWORKS["mlp"](), FAST, SLOW, FAST, SLOW)
    assert plan.trial.decided.cuts == (2, 2)
    assert sorted(plan.estimate.devices[:2]) == [0, 2]
