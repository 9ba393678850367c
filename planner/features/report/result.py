"""The result of ``tofu report``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from planner.cost.seconds.simulated import Differing


@dataclass(frozen=True, slots=True)
class ReportResult:
    """The files written of a plan for people to look at."""

    schema_version: ClassVar = 1
    told: ClassVar = (
        "directory page page_bytes svg trace trace_events measured=is_measured left_out estimated_seconds? "
        "simulated_seconds? differing?"
    )

    directory: Path
    """The plan's folder."""
    page: Path | None
    """The page, in HTML."""
    page_bytes: int
    svg: Path | None
    """The strip alone."""
    trace: Path | None
    """The simulated schedule, for Perfetto."""
    trace_events: int
    """Complete events that are in it."""
    is_measured: bool
    """Whether the times of a run are told, too."""
    left_out: tuple[str, ...]
    """The parts that are not on the page, with the reasons, in words."""
    estimated_seconds: float | None = None
    """The estimated time of an iteration; None without a trace. So are the next two."""
    simulated_seconds: float | None = None
    differing: tuple[Differing, ...] = ()
    """See ``SimulationResult``; all of them."""
