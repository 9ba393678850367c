"""How much work it may be to say how good a plan is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

EffortName: TypeAlias = Literal["quick", "normal", "thorough"]
EFFORTS: tuple[EffortName, ...] = ("quick", "normal", "thorough")


@dataclass(frozen=True, slots=True)
class BoundLimits:
    """How much work a bound may be, in what is counted."""

    table_entries: int = 32_000_000
    """Entries of all different tables of the joint problem; a larger problem is not begun."""
    pair_entries: int = 80_000_000
    """Entries that one pass over the core reads."""
    rounds: int = 12
    """Of passes and taking out."""
    dives: int = 1
    """Of settling the doubts of a bound one by one, to find better plans."""
    idle_doubts: int = 3
    """After so many in a row that led to nothing better no more are settled."""
    least_gain: float = 1 / 25
    """A round that closes a smaller share of the gap is the last."""
    exact_entries: int = 1 << 25
    """Exact elimination begins when no bucket is larger than this."""


NORMAL_BOUND = BoundLimits()
"""Where a bound takes seconds."""
THOROUGH_BOUND = BoundLimits(
    table_entries=200_000_000,
    pair_entries=1_000_000_000,
    rounds=30,
    dives=4,
    idle_doubts=8,
    least_gain=1 / 200,
)
"""Where a bound takes minutes, too."""
