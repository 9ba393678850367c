"""The result of ``tofu compare``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from planner.artifacts.estimate import ComputeSources
from planner.records import Positive
from planner.short_repr import ShortRepr


@dataclass(frozen=True, slots=True)
class TimesTheLeast:
    """The distance of a plan from the bounds of its products and convolutions."""

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
    """The bytes of the worker with the largest arrays."""
    excess_bytes: int | None
    """The penalty of repeated and uneven work."""
    search_seconds: float | None
    reason: str = ""
    estimated_seconds: float | None = None
    """The estimated time of an iteration; None without a topology."""
    sources: ComputeSources | None = None
    """The share of the compute that was measured; None without a profile."""
    soybean_bytes: int | None = None
    """``moved_bytes`` in SoyBean's convention (section 2.2); None where there is no plan."""
    times_the_least: float | None = None
    """The moved bytes of products and convolutions as a multiple of their bounds (``planner.cost.distance``); None
    where none is.
    """

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
    """The topology of the estimated times."""
    objective: Literal["bytes", "time"] = "bytes"
    """The objective of tofu's own plan."""
