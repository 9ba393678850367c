"""The result of a proof."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """The place where a program was not seen to be its model."""

    worker: int | None
    """None: several, or all."""
    step: str
    """The step, in words."""
    buffer: str
    op: str
    """The model's op, with its type; "" where it is none."""
    holds: str
    """What the buffer holds."""
    should: str
    """What it should."""
    is_counterexample: bool
    """True if it is known to be wrong; else it was not proven."""


@dataclass(frozen=True, slots=True)
class Proof:
    """The findings of a proof."""

    tensors: int
    """Results and next states."""
    buffers: int
    """Of all workers, whose claims were found."""
    functions: int
    """Kinds of function calls that were followed, each once."""
    fetches: int
    fault: Fault | None
    """The first fault; None: the program is equal to its model."""

    @property
    def is_proven(self) -> bool:
        return self.fault is None
