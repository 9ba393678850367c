"""The result of ``tofu fit``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from planner.records import Above0, Positive
from planner.short_repr import ShortRepr


@dataclass(frozen=True, slots=True)
class FitRow:
    """The memory of a model's plans for one number of workers."""

    workers: Positive
    at_least_bytes: int
    """Every plan takes so much at least on some worker."""
    least_bytes: int | None = None
    """The bytes on a worker of the plan with the smallest memory; None: none was looked for, since no plan can fit."""
    least_recompute: Literal["none", "auto"] | None = None
    """The tensors that it recomputes for the backward pass: ``none``, or, as ``plan --recompute auto`` would, ``auto``.
    """
    is_by_program: bool = False
    """Whether its program says so; else it is what lies there op by op, on an average worker."""
    fits: bool = False
    """A plan was found that fits."""
    plan_workers: Positive | None = None
    """The number of workers of the plan that is taken; fewer where the others are better idle; None: none fits."""
    plan_bytes: int | None = None
    """The bytes of that plan on a worker."""
    recompute: Literal["none", "auto"] | None = None
    """The tensors that that plan recomputes."""
    moved_bytes: int | None = None
    """The bytes that that plan moves in an iteration, over all workers."""
    estimated_seconds: float | None = None
    """The estimated time of an iteration of that plan; None without a topology that says how fast its devices are."""
    largest_batch: Positive | None = None
    """The largest batch for which a plan was found that fits; None: none was, or the batch cannot be changed."""


@dataclass(frozen=True, slots=True)
class WhyNot:
    """The largest tensors for a number of workers that is too small."""

    workers: Positive
    op: str
    """The op at which every plan takes the most."""
    purpose_bytes: Mapping[str, int]
    """The bytes that every plan takes then at least on a worker, by purpose: parameters, activations."""


@dataclass(frozen=True, slots=True)
class FitAnswer:
    """The number of workers that hold a model, on one machine or within a limit on memory."""

    told: ClassVar = "topology memory_bytes workers rows why_not"

    topology: str | None
    memory_bytes: Positive
    """The memory of a worker."""
    rows: tuple[FitRow, ...]
    """The rows by number of workers, ascending."""
    workers: Positive | None
    """The least that hold it, within the time that was asked for; None: none of those that were looked at do."""
    why_not: WhyNot | None
    """The largest tensors at the number below that, or at the largest if none holds it; None where there is none below.
    """


@dataclass(frozen=True, slots=True, repr=False)
class FitResult(ShortRepr):
    """The number of workers that hold a model."""

    schema_version: ClassVar = 1
    told: ClassVar = "model batch batches why_fixed? within_seconds answers page?"

    model: str
    answers: tuple[FitAnswer, ...]
    """The answer for each machine."""
    batch: Positive | None
    """Samples of an iteration, of the plans; None where nothing says how many there are."""
    batches: tuple[Positive, Positive] | None
    """The smallest and the largest batch among which the largest was looked for; None: the batch cannot be changed."""
    why_fixed: str = ""
    """The reason why it cannot, in words."""
    within_seconds: Above0 | None = None
    """The time that an iteration may be estimated to take; None: any time."""
    page: Path | None = None
    """The page that was written; None: none was asked for."""

    @property
    def is_held(self) -> bool:
        """Whether each machine holds the model."""
        return all(answer.workers is not None for answer in self.answers)
