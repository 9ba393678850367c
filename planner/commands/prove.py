"""``tofu prove``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.commands.derived import derived, given
from planner.commands.exit_codes import EXIT_DONE, EXIT_NO
from planner.commands.options import JSON
from planner.commands.show import show
from planner.options.plans import ProveOptions


@click.command(short_help="Prove that a plan's worker models are equal to its model.")
@click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@derived(ProveOptions)
@JSON
def prove(directory: Path | None, json_wanted: bool, **options: Any) -> int:
    """Prove that what the workers of the plan in DIR compute is what its model computes, for all inputs.

    Nothing is executed: the worker models are held against the descriptions of the model's ops. Without DIR, the
    newest plan in the working directory. Exits with 1 if it is not proven, and says of which op and where
    (docs/prove.md).

    \b
    Examples:
      tofu prove plan
      tofu prove plan --json
    """
    from planner.artifacts.place import require_plan

    require_plan(directory)
    from planner import api

    result = show(lambda line: api.prove(directory, progress=line, **given(ProveOptions, options)), json_wanted)
    return EXIT_DONE if result.is_proven else EXIT_NO
