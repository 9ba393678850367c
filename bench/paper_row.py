"""A line of ``make papers``: what a paper prints beside what an estimate says; and the testbeds that estimates are for.

Each testbed has one constant, the share of its rooflines that devices attain, fitted to one printed figure: everything
else is what the papers and data sheets say of the machine. It measures nothing; ``python bench/papers.py`` prints.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeAlias

from planner import opdefs
from planner.algebra.tiling import UNCUT
from planner.cost.roofline import Roofline
from planner.features.zoo.models import build
from planner.graph.core.model import Graph
from planner.machine.topology_file import Device, DeviceGraph, Level, Machine, Topology, load_topology


class Verdict(enum.Enum):
    """Whether a printed figure comes out."""

    REPRODUCED = "reproduced"
    ORDER = "order only"
    NOT = "not"
    FITTED = "fitted"


@dataclass(frozen=True, slots=True)
class Row:
    """Figures of a paper that stand together."""

    where: str
    """Section, figure or table."""
    what: str
    printed: str
    ours: str
    verdict: Verdict
    why: str = ""
    """Of what is not reproduced: one sentence, from one experiment."""
    figures: int = 1
    """How many printed figures it holds."""


Job: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function of a module and its arguments, for any process."""


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper's figures."""

    name: str
    jobs: Mapping[str, Job]
    """What is worked out for it, by name."""
    rows: Callable[[Mapping[str, Any]], list[Row]]
    """The lines, from what the jobs gave."""


def close(ours: float, printed: float, within: float = 0.1, *, order: bool = False) -> Verdict:
    """Reproduced if it is so near; else whether at least an order holds.

    Args:
        ours: what is estimated.
        printed: by the paper.
        within: of the printed figure.
        order: the order that the figure shows holds.
    """
    if abs(ours - printed) <= within * abs(printed):
        return Verdict.REPRODUCED
    return Verdict.ORDER if order else Verdict.NOT


def holds(is_so: bool, *, order: bool = False) -> Verdict:
    """Of a claim."""
    return Verdict.REPRODUCED if is_so else Verdict.ORDER if order else Verdict.NOT


def slower(machine: Machine, share: float) -> Machine:
    """The same machine with devices that attain a share of what the file says, computing and touching memory."""

    def attained(device: Device) -> Device:
        bandwidth = device.memory_bandwidth_bytes_per_s
        return replace(
            device,
            compute_flop_per_s=tuple((dtype, share * speed) for dtype, speed in device.compute_flop_per_s),
            memory_bandwidth_bytes_per_s=None if bandwidth is None else share * bandwidth,
        )

    if isinstance(machine, DeviceGraph):
        return replace(machine, devices=tuple(map(attained, machine.devices)))
    return replace(machine, device=attained(machine.device))


def alone_seconds(graph: Graph, device: Device) -> float:
    """What an iteration of an undivided graph computes on one device with memory enough."""
    roofline = Roofline([device])
    return float(sum(roofline.seconds(bound, UNCUT)[0] for bound in opdefs.standard().bind_all(graph)))


P2_PRINTED_SECONDS = 1.13
"""SoyBean, Table 1: an iteration of the MLP 4x8192 on one GPU, batch 2048."""
HOST_BYTES_PER_S = 10e9
"""Tofu, section 7.1: between CPU and GPUs; section 7.2: all eight share it."""


@cache
def p2_share() -> float:
    """The constant of the machine of Tofu and SoyBean, from ``P2_PRINTED_SECONDS``: no links are in that figure."""
    return alone_seconds(build("mlp-4x8192", batch=2048), load_topology("p2.8xlarge").devices[0]) / P2_PRINTED_SECONDS


@cache
def p2(reading: str = "sockets") -> Topology:
    """The machine of Tofu and SoyBean.

    Args:
        reading: ``sockets``: what goes from one CPU's four GPUs to the other's shares the 10 GB/s between CPU and GPU;
            ``flat``: any two GPUs have the 21 GB/s that Tofu, section 7.1, states, and nothing is shared.
    """
    machine = slower(load_topology("p2.8xlarge"), p2_share())
    assert isinstance(machine, Topology), "the shipped file has levels"
    if reading == "sockets":
        return machine
    level = machine.levels[-1]
    return replace(machine, levels=(Level(level.name, 8, level.bandwidth_bytes_per_s, level.latency_seconds),))


P2_READINGS = ("sockets", "flat")
