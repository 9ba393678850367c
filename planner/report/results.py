"""What the commands return, as data; rendered by ``tables.py`` and ``as_json.py``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from planner.graph.model import Role, Shape
from planner.plan import Plan


@dataclass(frozen=True, slots=True)
class GradResult:
    """A training graph that was built and written."""

    output: Path
    loss: str
    optimizer: str
    inputs: tuple[str, ...]
    """Data inputs."""
    results: tuple[str, ...]
    """Outputs that are not next states."""
    states: int
    """Tensors of state: parameters, momentum, running statistics."""
    state_elements: int
    ops_by_type: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PlanResult:
    """A plan that was found and written."""

    plan: Plan
    directory: Path
    search_seconds: float
    """From the graph in memory to the plan."""
    total_seconds: float
    """From the file to the files."""
    ops: int
    fetches: int
    segments: int
    """Segments over all workers."""
    functions: int
    """Distinct bodies of segments."""
    state_bytes: int
    """Of the whole state, once."""


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One tensor of a plan."""

    name: str
    shape: Shape
    dtype: str
    role: Role
    tiling: str
    tile_shape: Shape
    """Of the largest tile."""
    moved_bytes: int
    """What moves because of it, per iteration, over all workers."""
    made_by: str
    """Name of the op; "" for an input."""
    read_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OpRow:
    """One op of a plan."""

    name: str
    op_type: str
    strategy: str
    """Index variables that it is cut along."""
    variables: tuple[str, ...]
    """Its index variables with their extents: ``b=8``."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A plan's tensors and ops, or those that were asked for."""

    plan: Plan
    directory: Path
    tensors: tuple[TensorRow, ...]
    ops: tuple[OpRow, ...]
    subject: str | None
