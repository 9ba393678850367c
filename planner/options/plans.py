"""Options of commands on existing plans: ``build``, ``prove``, ``explain``, ``report``, ``export`` and ``diff``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

from planner.options import FolderOptions, argument, option, options

SortedBy: TypeAlias = Literal["moved", "size", "name"]
HELD = "held"
"""In the place of a role: the activations that are held for the backward pass."""
ROLES = ("state", "next-state", "data", "result", "activation", HELD)
"""Names of roles, as an option takes them; constants are divided by no plan."""


@options
class BuildOptions(FolderOptions):
    """What ``tofu build`` and ``planner.build`` are asked for."""

    force: bool = option("Make models anew that are there.", default=False)


@options
class ExplainOptions:
    """What ``tofu explain`` and ``planner.explain`` are asked for."""

    directory: Path | None = argument(kw_only=False, default=None)
    subject: str | None = argument(kw_only=True, default=None)
    every: bool = False
    role: str | None = None
    op: str | None = None
    sort: SortedBy | None = option("In what order.  [default: as they are in the model]", default=None)
    runners_up: int = 3
    bounds: bool = False
