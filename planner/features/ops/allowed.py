"""Strategies that brute force finds right and the analysis does not give, on purpose, each with the reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Allowed:
    """A gap that is left."""

    op_type: str
    containing: str
    """The text of the gap has this in it."""
    reason: str


GAPS: tuple[Allowed, ...] = (
    Allowed(
        "MaxUnpool", "[3,2,5,4]", "places that occur once by chance: of a place that occurs twice the last value stays"
    ),
    Allowed("Size", "", "nothing is read and one number is made: there is nothing to divide"),
)
"""Missing strategies that are left out on purpose."""


def gap_reason(op_type: str, text: str) -> str:
    """The reason why a gap is left; "" if nothing says so."""
    return next((gap.reason for gap in GAPS if gap.op_type == op_type and gap.containing in text), "")
