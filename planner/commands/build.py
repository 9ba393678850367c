"""``tofu build``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.commands.derived import derived, given
from planner.commands.exit_codes import EXIT_DONE
from planner.commands.options import JSON
from planner.commands.show import chosen_plan, show
from planner.options.plans import BuildOptions


@click.command(short_help="Write the workers' models of a plan that has none.")
@click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@derived(BuildOptions)
@JSON
def build(directory: Path | None, json_wanted: bool, **options: Any) -> int:
    """Write one ONNX model per worker into the plan's folder DIR, which `tofu plan --no-models` wrote.

    Without DIR, the newest plan in the working directory. The folder is then as if it had been written with models.
    `tofu run` does the same by itself.

    \b
    Examples:
      tofu plan train.onnx --gpus 8 --no-models -o plan
      tofu build plan
      tofu build plan --force
    """
    directory = chosen_plan(directory)
    from planner import api

    show(lambda line: api.build(directory, progress=line, **given(BuildOptions, options)), json_wanted)
    return EXIT_DONE
