"""``tofu export``."""

from __future__ import annotations

from pathlib import Path

import click

from planner.commands.exit_codes import EXIT_DONE
from planner.commands.options import JSON, output_file
from planner.commands.show import chosen_plan, show


@click.command(short_help="Write a plan for JAX, PyTorch or ONNX.")
@click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@click.option(
    "--to",
    type=click.Choice(("jax", "placements", "sharding")),
    required=True,
    help="jax: the step in JAX, which moves what the plan says; placements: the tilings as placements of PyTorch's "
    "DTensor; sharding: the model with the tilings as ONNX sharding annotations.",
)
@output_file("Where to write it: FILE.py, or FILE.onnx.")
@JSON
def export(directory: Path | None, to: str, output: Path, json_wanted: bool) -> int:
    """Write the plan in DIR for another runtime: tilings and strategies, as code that a person can read.

    Without DIR, the newest plan in the working directory. What cannot be expressed is named, and nothing is written.

    \b
    Examples:
      tofu export plan --to jax -o train_step.py
      tofu export plan --to placements -o placements.py
      tofu export plan --to sharding -o annotated.onnx
    """
    directory = chosen_plan(directory)
    from planner import api

    show(lambda line: api.export(directory, progress=line, **{to: output}), json_wanted)
    return EXIT_DONE
