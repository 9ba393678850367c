"""``tofu fit``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.commands.derived import derived, given
from planner.commands.exit_codes import EXIT_DONE, EXIT_NO
from planner.commands.options import JSON, MODEL
from planner.commands.show import show
from planner.features.fit.options import FitOptions


@click.command(short_help="How many GPUs hold a model, and with which batch.")
@MODEL
@derived(FitOptions)
@JSON
def fit(model: Path, json_wanted: bool, **options: Any) -> int:
    """Say how many GPUs hold MODEL, what plans take on each number of them, and how large the batch may be.

    MODEL is a training graph, the folder of a plan, or a name of `tofu zoo`. If no number of GPUs holds it, the exit
    code is 1. The batch is changed by a symbolic dim, or as `tofu grad` wrote the graph, from its forward model.

    \b
    Examples:
      tofu fit train.onnx --memory 80GiB
      tofu fit llama3-8b --topology dgx-h100 --topology h100-64x8
      tofu fit train.onnx --memory 24GiB --gpus 2,3,6
      tofu fit train.onnx --topology dgx-h100 --within 0.5s
      tofu fit train.onnx --memory 16GiB --batch 1..256 -o fit.html
    """
    from planner import api

    result = show(lambda line: api.fit(model, progress=line, **given(FitOptions, options)), json_wanted)
    return EXIT_DONE if result.is_held else EXIT_NO
