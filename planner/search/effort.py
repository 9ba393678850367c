"""How much work it may be to say how good a plan is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

EffortName: TypeAlias = Literal["quick", "normal", "thorough"]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much work a certificate may be."""

    table_entries: int = 32_000_000
    """Entries of all different tables of the joint problem; a larger problem is not begun."""
    pair_entries: int = 60_000_000
    """Entries that one pass over the core reads."""
    rounds: int = 12
    """Of passes and taking out."""
    least_gain: float = 1 / 25
    """A round that closes a smaller share of the gap is the last."""
    case_entries: float = 1e10
    """Entries of the tables that are read at a time to look into blocks case by case."""
    exact_entries: int = 1 << 25
    """Exact elimination begins when no bucket is larger than this."""


EFFORTS: Mapping[EffortName, Effort] = MappingProxyType(
    {
        "quick": Effort(table_entries=0),
        "normal": Effort(),
        "thorough": Effort(
            table_entries=200_000_000, pair_entries=1_000_000_000, rounds=60, least_gain=1 / 100, case_entries=4e10
        ),
    }
)
"""By name: no bound at all; a bound where it takes seconds; a bound where it takes minutes."""
