"""The result of ``tofu export``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from planner.records import Positive


@dataclass(frozen=True, slots=True)
class ExportResult:
    """A plan that was written for other runtimes."""

    schema_version: ClassVar = 1

    model: str
    workers: Positive
    cuts: tuple[Positive, ...]
    predicted_bytes: int
    """What the plan moves between workers in an iteration."""
    ops: int
    jax: Path | None
    """The file of the step in JAX; None: none was asked for."""
    constants: Path | None
    """The file of constants beside it; None: it needs none."""
    moved_bytes: int | None
    """What that step's collectives move."""
    functions: int | None
    """How many functions for ops it has; equal ops share one."""
    blocks: int | None
    """How many functions for runs of ops that there are several times."""
    padded: tuple[str, ...]
    """Its inputs and outputs whose parts are not of one shape, and are filled up."""
    padding_bytes: int | None
    """What that takes on all workers together."""
    notes: tuple[str, ...]
    """What that step does in another way than the plan says."""
    placements: Path | None
    """The file of placements for PyTorch; None: none was asked for."""
    tensors: int | None
    """How many tensors have placements there."""
    uneven: tuple[str, ...]
    """Those that DTensor divides into other parts."""
