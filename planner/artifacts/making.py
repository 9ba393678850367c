"""How the program of a plan is made, beside what the plan says: so that its models can be made of the plan's folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planner.strict_json import Value


@dataclass(frozen=True, slots=True)
class Making:
    """How the program of a plan is made."""

    is_lean: bool = False
    """Every result of an op has a place in the arena, also where only ops of the same segment read it."""
    limit_bytes: int = 0
    """The bytes that no worker should take more of: buffers are placed again until it does; 0: none."""
    apart: tuple[tuple[float, ...], ...] = ()
    """How far workers are from each other, [reader][source]; () if only the cuts tell."""

    @classmethod
    def stated(cls, value: Value) -> Making:
        """What a manifest says.

        Raises:
            JsonError: it does not say it.
        """
        return cls(
            value["is_lean"].flag(),
            value["limit_bytes"].count(),
            tuple(row.numbers() for row in value["apart"].values()),
        )


USUAL: Final = Making()
"""How most programs are made: no folder says it."""
