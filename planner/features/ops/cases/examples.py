"""Representative ops of every described type: attributes, ranks, and sizes that are even, odd, prime and 1."""

from __future__ import annotations

from planner.features.ops.cases import compute, images, layers, microsoft, movement, quantised
from planner.features.ops.cases.case import Case


def all_cases() -> tuple[Case, ...]:
    """Every case of every family."""
    files = (compute, movement, layers, images, quantised, microsoft)
    return tuple(case for file in files for family in file.families() for case in family)
