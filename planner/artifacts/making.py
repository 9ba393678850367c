"""Settings of a plan's program beside the plan itself: so that its models can be made of the plan's folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Making:
    """The settings of a plan's program."""

    is_lean: bool
    """Every result of an op has a place in the arena, also where only ops of the same segment read it."""
    limit_bytes: int
    """The bytes that no worker should take more of: buffers are placed again until it does; 0: none."""
    apart: tuple[tuple[float, ...], ...]
    """How far workers are from each other, [reader][source]; () if only the cuts tell."""


USUAL: Final = Making(is_lean=False, limit_bytes=0, apart=())
"""How most programs are made: no folder says it."""
