"""All that a page tells of a plan, as data; gathered by ``planner.features.report.run``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planner.artifacts.measured import MeasuredRun
from planner.artifacts.plan import Plan
from planner.cost.seconds.simulated import Schedule
from planner.features.report.page.axes import Axes
from planner.features.report.page.columns import Column
from planner.features.report.page.layers import Layers
from planner.graph.core.model import Graph
from planner.partition.collectives import Collected
from planner.partition.occupancy import Occupancy
from planner.reasons import Cause


@dataclass(frozen=True, slots=True)
class Beside:
    """Another way to spread the same step, beside the plan."""

    name: str
    moved_bytes: int | None
    """None where there is no plan, or it was not computed."""
    excess_bytes: int | None
    remark: str
    """What it is, or why it was not computed."""
    seconds: float | None = None
    """The time of a step, estimated on the plan's machine; None where that is not known."""
    peak_bytes: int | None = None
    """The memory of the fullest worker."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a worker over its steps."""

    held_bytes: NDArray[np.int64]
    """At each step of its program, and after all of them."""
    total_bytes: int
    """The most of these: the arena, with its gaps, and what lies inside of segments."""
    begins: Mapping[str, int]
    """By part of an iteration, ``backward`` and ``update``, the step in which it begins; {} where there is none."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of a page."""

    date: str
    """Of the day, as 2026-01-31."""
    versions: str
    """Of tofu, and of what it read the plan with."""
    command: str
    """The command that makes the page again."""
    plan_command: str
    """The command that makes the plan again, as far as the plan records it."""


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """All that a page tells."""

    directory: Path
    """The plan's folder."""
    plan: Plan
    graph: Graph
    """That the plan is of, with its shared deliveries."""
    columns: tuple[Column, ...]
    """The columns of the strip."""
    axes: Axes
    layers: tuple[Layers, ...]
    pass_of: Mapping[str, str]
    """The pass of each op."""
    collectives: Mapping[str, Collected]
    """The collectives of the program by kind."""
    beside: tuple[Beside, ...]
    memory: tuple[Memory, ...]
    """By worker."""
    fullest: Occupancy
    """Of the worker that needs most."""
    limits: tuple[int, ...] | None
    """The memory of each worker's device; None where nothing says it."""
    schedule: Schedule | None
    """Simulated; None where it cannot be."""
    no_schedule: str
    """Why, and what to do about it."""
    measured: MeasuredRun | None
    causes: tuple[Cause, ...]
    """The largest."""
    readers: Mapping[str, tuple[str, tuple[str, ...]]]
    """By tensor: the op that makes it, and those that read it."""
    provenance: Provenance
    throughput: str
    """Samples a second and the share of the peak, in words; "" of a plan without an estimate."""
