"""Whether a graph was found to be what its file says, as a row and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.printing.facts import counted

if TYPE_CHECKING:
    from planner.runtime.judge.door import DoorVerdict


def door_fact(door: DoorVerdict) -> tuple[str, str]:
    """The row of a table."""
    file = door.file or "the file"
    if door.not_done:
        return "model file", f"not held against {file}: {door.not_done}"
    if door.difference is not None:
        return "model file", f"{file} says otherwise, first in {door.difference}"
    return "model file", f"as read and in canonical form what {file} makes, in {counted(door.tensors, 'result')}"
