"""Settings by which a plan's model is read and its program is made once more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final


@dataclass(frozen=True, slots=True)
class Making:
    """The settings of a plan's program."""

    is_lean: bool
    """Every result of an op has a place in the arena, also where only ops of the same segment read it."""
    limit_bytes: int
    """The bytes that no worker should take more of: buffers are placed again until it does; 0: none."""
    apart: tuple[tuple[float, ...], ...]
    """How far workers are from each other, [reader][source]; () if only the cuts tell."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Options of reading the file that was planned, and of planning it."""

    told: ClassVar = "dims? values? states_pairs? words?"

    dims: Mapping[str, int] = field(default_factory=dict)
    """Sizes of symbolic dims."""
    values: Mapping[str, str] = field(default_factory=dict)
    """The numbers that inputs became, by input."""
    states_pairs: bool = False
    """The user paired states with next states: the pairs are those of the folder."""
    words: tuple[str, ...] = ()
    """The options of the command that made the plan, as the user wrote them, less those that say where it goes."""


USUAL: Final = Making(is_lean=False, limit_bytes=0, apart=())
"""How most programs are made: no folder says it."""
