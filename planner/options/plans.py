"""Options of commands on existing plans: ``build``, ``prove``, ``explain``, ``report``, ``export`` and ``diff``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeAlias

from planner.options import FolderOptions, argument, measured, option, options

SortedBy: TypeAlias = Literal["moved", "size", "name"]
HELD = "held"
"""In the place of a role: the activations that are held for the backward pass."""
ROLES = ("state", "next-state", "data", "result", "activation", HELD)
"""Names of roles, as an option takes them; constants are divided by no plan."""


def planned_for() -> Any:
    """The topology of a plan."""
    return option(
        "The topology that the plan is for.  [default: by its name, of those that ship with tofu]",
        default=None,
        metavar="FILE|NAME",
    )


@options
class BuildOptions(FolderOptions):
    """What ``tofu build`` and ``planner.build`` are asked for."""

    force: bool = option("Make models anew that are there.", default=False)


@options
class ExplainOptions:
    """What ``tofu explain`` and ``planner.explain`` are asked for."""

    directory: Path | None = argument(kw_only=False, default=None)
    subject: str | None = argument(kw_only=True, default=None)
    every: bool = option("Every tensor and every op, as wide tables.", default=False, flags=("--all",))
    role: str | None = option(
        "The tensors of this role, or those held for the backward pass.", default=None, choices=ROLES
    )
    op: str | None = option("The ops of this type, such as Conv or 'Reduce*'.", default=None, metavar="TYPE")
    sort: SortedBy | None = option("In what order.  [default: as they are in the model]", default=None)
    runners_up: int = option(
        "Of one tensor or op, how many other choices to solve for.", default=3, shows_default=True, metavar="N"
    )
    bounds: bool = option("How far each product and convolution is from the least that it can move.", default=False)
    opdefs: Path | None = None
    """On the command line, among those of ``SimulateOptions``."""


@options
class SimulateOptions(FolderOptions):
    """What ``tofu explain --time`` and ``planner.simulate`` are asked for."""

    topology: str | None = planned_for()
    profile: Path | None = measured()
