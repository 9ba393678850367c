"""``tofu export``."""

from __future__ import annotations

from pathlib import Path

import click

from planner.commands.exit_codes import EXIT_DONE
from planner.commands.options import JSON, OPDEFS
from planner.commands.show import show


@click.command(short_help="Write a plan for JAX or PyTorch.")
@click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@click.option("--jax", type=click.Path(path_type=Path), metavar="FILE.py",
              help="Write the step in JAX, which moves what the plan says.")  # fmt: skip
@click.option("--placements", type=click.Path(path_type=Path), metavar="FILE.py",
              help="Write the tilings as placements of PyTorch's DTensor.")  # fmt: skip
@OPDEFS
@JSON
def export(
    directory: Path | None, jax: Path | None, placements: Path | None, opdefs: Path | None, json_wanted: bool
) -> int:
    """Write the plan in DIR for another runtime: tilings and strategies, as code that a person can read.

    Without DIR, the newest plan in the working directory. What cannot be expressed is named, and nothing is written.

    \b
    Examples:
      tofu export plan --jax train_step.py
      tofu export plan --placements placements.py
      tofu export plan --jax train_step.py --placements placements.py --json
    """
    from planner import api
    from planner.report import exports

    show(
        lambda line: api.export(directory, jax=jax, placements=placements, opdefs=opdefs, progress=line),
        exports.export,
        json_wanted,
    )
    return EXIT_DONE
