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
        return "import check", f"not done for {file}: {door.not_done}"
    if door.difference is not None:
        return "import check", f"differs from ONNX Runtime's run of {file}, first in {door.difference}"
    return "import check", f"{counted(door.tensors, 'output')} equal ONNX Runtime's on {file}"
