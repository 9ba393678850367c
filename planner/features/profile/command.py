"""``tofu profile``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.commands.derived import derived, given
from planner.commands.exit_codes import EXIT_DONE
from planner.commands.options import JSON, takes_model
from planner.commands.show import show
from planner.features.profile.options import ProfileOptions


@click.command(short_help="Measure what ops take on this machine, for estimates of time.")
@takes_model
@derived(ProfileOptions)
@JSON
def profile(model: Path, json_wanted: bool, **options: Any) -> int:
    """Time every op of MODEL on this machine, whole and in the parts that a plan may give to a worker.

    MODEL is an ONNX file, a name of `tofu zoo`, or the folder of a plan. `tofu plan` takes the file with --profile, for
    estimates of time and for --objective time. Where it lacks an op, it says so (docs/machines.md).

    \b
    Examples:
      tofu profile train.onnx
      tofu profile train.onnx --gpus 4 -o train.yaml
      tofu profile train.onnx --topology dgx-h100 --device cuda -o h100.yaml
      tofu plan train.onnx --topology dgx-h100 --objective time --profile h100.yaml
    """
    from planner import api

    show(
        lambda line: api.profile(model, progress=line, notice=line.note, **given(ProfileOptions, options)), json_wanted
    )
    return EXIT_DONE
