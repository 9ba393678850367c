"""Which plan a command is about."""

from __future__ import annotations

from pathlib import Path

from planner.artifacts import place
from planner.commands.streams import say


def chosen_plan(directory: Path | None) -> Path:
    """The plan's folder; where none is named it is the newest in the working directory, and stderr says which.

    Args:
        directory: the folder, or None.

    Raises:
        UsageError: it holds no plan, or there is none.
    """
    found = place.require_plan(directory)
    if directory is None:
        say(place.newest_note(found))
    return found
