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
    """The bytes that the plan moves between workers in an iteration."""
    ops: int
    jax: Path | None
    """The file of the step in JAX; None: none was asked for."""
    constants: Path | None
    """The file of constants beside it; None: it needs none."""
    moved_bytes: int | None
    """The bytes that that step's collectives move."""
    functions: int | None
    """The number of its functions for ops; equal ops share one."""
    blocks: int | None
    """The number of its functions for runs of ops that there are several times."""
    padded: tuple[str, ...]
    """The inputs and outputs whose parts are not of one shape, and are filled up."""
    padding_bytes: int | None
    """The bytes of that on all workers together."""
    notes: tuple[str, ...]
    """Notes on points in which that step differs from the plan."""
    placements: Path | None
    """The file of placements for PyTorch; None: none was asked for."""
    tensors: int | None
    """The number of tensors with placements there."""
    uneven: tuple[str, ...]
    """The tensors that DTensor divides into other parts."""
    sharding: Path | None
    """The file of the model with ONNX's sharding annotations; None: none was asked for."""
