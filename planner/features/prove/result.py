"""The result of ``tofu prove``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from planner.features.prove.proof.result import Fault
from planner.records import Positive


@dataclass(frozen=True, slots=True)
class ProveResult:
    """Whether a plan's worker models were proven to be equal to its model."""

    schema_version: ClassVar = 1

    directory: Path
    """The plan's folder; of a model that is proven elsewhere, its file."""
    model: str
    workers: Positive
    is_proven: bool
    tensors: int
    """Results and next states of the model."""
    buffers: int
    """Of all workers, of which it was found what they hold."""
    functions: int
    """Kinds of function calls that were followed, each once."""
    fetches: int
    """That were followed."""
    fault: Fault | None
    """The first place where it was not seen; None where it is proven."""
