"""``tofu compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.artifacts.place import is_plan
from planner.commands.derived import derived, given
from planner.commands.exit_codes import EXIT_DONE
from planner.commands.options import JSON, check_count, takes_model
from planner.commands.progress_line import how_much
from planner.commands.show import show
from planner.commands.streams import say
from planner.features.compare.options import CompareOptions


@click.command(short_help="Every strategy of the literature beside the found plan.")
@takes_model
@derived(CompareOptions)
@JSON
def compare(model: Path, json_wanted: bool, **options: Any) -> int:
    """Plan MODEL by every strategy of the literature, and print what each of them moves and holds.

    MODEL is an ONNX file, a name of `tofu zoo`, or the folder of a plan: then on its machine, by its profile and rates.
    Tofu's own plan is for the least cost in bytes, and on a topology for the least estimated time, as that of
    `tofu plan` is.

    \b
    Examples:
      tofu compare train.onnx --gpus 8
      tofu compare train.onnx --gpus 4 --json
      tofu compare train.onnx --topology p2.8xlarge
      tofu compare train.onnx --topology dgx-h100 --gpus 4
      tofu compare plan
    """
    check_count("compare", options["gpus"], options["topology"], model)
    from planner import api

    if is_plan(model) and how_much() != "quiet":
        say(f"note: every strategy is planned anew, without the pins, forbidden tilings and limit of {model}")
    show(lambda line: api.compare(model, progress=line, **given(CompareOptions, options)), json_wanted)
    return EXIT_DONE
