"""The descriptions in force: the standard ones, those of the user's file, and what becomes of operators without any."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

from planner import opdefs
from planner.artifacts.plan import DescriptionFile
from planner.errors import UsageError
from planner.tdl.descriptions import Descriptions

UnknownOps: TypeAlias = Literal["refuse", "replicate"]
"""What becomes of an operator without a description: an error, or every worker runs it whole."""


def in_force(file: Path | None, unknown_ops: UnknownOps = "refuse") -> tuple[Descriptions, DescriptionFile | None]:
    """The descriptions, and what a plan remembers of the user's file.

    Args:
        file: descriptions of the user's own; it is executed.
        unknown_ops: what becomes of operators without a description.

    Raises:
        TofuError: the file cannot be used.
    """
    mine = None if file is None else opdefs.load_file(file)
    descriptions = opdefs.standard(
        *(() if mine is None else mine.descriptions), repeats_unknown=unknown_ops == "replicate"
    )
    return descriptions, None if mine is None else DescriptionFile(mine.path.name, mine.sha256)


def of_plan(
    made_with: DescriptionFile | None, needed_in: Path | None = None
) -> tuple[Descriptions, DescriptionFile | None]:
    """The descriptions that a plan was made with; the standard ones alone if the user's file is not at hand.

    Args:
        made_with: what the plan remembers of the user's file.
        needed_in: the plan's folder, where the standard ones alone do not do; None: they do.

    Raises:
        TofuError: the user's file cannot be used, or is needed and not at hand.
    """
    file = None if made_with is None else opdefs.remembered(made_with.sha256)
    if needed_in is not None and made_with is not None and file is None:
        own = f"{made_with.name}, sha256 {made_with.sha256[:12]}"
        raise UsageError(
            f"the plan in {needed_in} was made with descriptions of your own: {own}",
            facts=("that file is gone, has changed, or was never given to tofu here",),
            hint=how_to_give(made_with),
        )
    return in_force(file, "replicate")


def how_to_give(made_with: DescriptionFile) -> str:
    """The hint where a plan's descriptions are not at hand."""
    return f"`tofu ops --opdefs {made_with.name}` executes that file once; then it is found by its content"
