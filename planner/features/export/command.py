"""``tofu export``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.commands.derived import derived, given
from planner.commands.exit_codes import EXIT_DONE
from planner.commands.options import JSON
from planner.commands.show import chosen_plan, show
from planner.features.export.options import ExportOptions


@click.command(short_help="Write a plan for JAX or PyTorch.")
@click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@derived(ExportOptions)
@JSON
def export(directory: Path | None, json_wanted: bool, **options: Any) -> int:
    """Write the plan in DIR for another runtime: tilings and strategies, as code that a person can read.

    Without DIR, the newest plan in the working directory. What cannot be expressed is named, and nothing is written.

    \b
    Examples:
      tofu export plan --jax train_step.py
      tofu export plan --placements placements.py
      tofu export plan --jax train_step.py --placements placements.py --json
    """
    directory = chosen_plan(directory)
    from planner import api

    show(lambda line: api.export(directory, progress=line, **given(ExportOptions, options)), json_wanted)
    return EXIT_DONE
