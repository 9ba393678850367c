"""The result of ``tofu compare``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from planner.artifacts.estimate import ComputeSources
from planner.records import Positive
from planner.short_repr import ShortRepr


@dataclass(frozen=True, slots=True)
class TimesTheLeast:
    """How far a plan is from the bounds of its products and convolutions."""

    times_the_least: float | None
    """See ``ComparisonRow``."""


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """A strategy of the literature, and what its plan costs."""

    told: ClassVar = (
        "strategy moved_bytes soybean_bytes peak_bytes estimated_seconds excess_bytes bounds cost search_seconds "
        "reason sources?"
    )

    strategy: str
    what: str
    moved_bytes: int | None
    """None where the strategy has no plan for this model; ``reason`` says why."""
    peak_bytes: int | None
    """Of the worker with the largest arrays."""
    excess_bytes: int | None
    """What repeated and uneven work costs."""
    search_seconds: float | None
    reason: str = ""
    estimated_seconds: float | None = None
    """Of an iteration, an estimate; None without a topology."""
    sources: ComputeSources | None = None
    """How much of the computing was measured; None without a profile."""
    soybean_bytes: int | None = None
    """``moved_bytes`` in SoyBean's convention (section 2.2); None where there is no plan."""
    times_the_least: float | None = None
    """How often the bounds of products and convolutions these move (``planner.cost.distance``); None where none is."""

    @property
    def cost(self) -> int | None:
        """What tofu makes the least; None where there is no plan."""
        return None if self.moved_bytes is None else self.moved_bytes + (self.excess_bytes or 0)

    @property
    def bounds(self) -> TimesTheLeast:
        return TimesTheLeast(self.times_the_least)


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(ShortRepr):
    """Every strategy beside the found plan."""

    schema_version: ClassVar = 1
    told: ClassVar = "model workers topology objective rows"

    model: str
    workers: Positive
    rows: tuple[ComparisonRow, ...]
    topology: str | None = None
    """What the times are estimated for."""
    objective: Literal["bytes", "time"] = "bytes"
    """What tofu's own plan has the least of."""
