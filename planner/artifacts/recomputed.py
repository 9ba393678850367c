"""Tensors of a model that a plan recomputes for the backward pass: recorded in ``plan.json``."""

from __future__ import annotations

from dataclasses import dataclass

from planner.records import Signed


@dataclass(frozen=True, slots=True)
class Recomputed:
    """The activations that are computed again, and what that saves and costs."""

    tensors: tuple[str, ...]
    """Activations of the planned form, in its order, that have copies (``planner.graph.rewriting.recomputation``)."""
    kept: tuple[str, ...]
    """Activations that the backward pass reads, or a copy, and that are kept for it."""
    saved_bytes: Signed
    """By how much less lies on a worker at the fullest moment, op by op, than without, tensors and ops being divided as
    they are: the mean of the workers. Negative where copies take more room than they save."""
    work_share: float
    """The work of the copies, as a share of the step's work without them (0.09 = 9%)."""
