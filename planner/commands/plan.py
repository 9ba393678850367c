"""``tofu plan``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.commands.derived import derived, given
from planner.commands.exit_codes import EXIT_DONE
from planner.commands.grouped_help import GroupedCommand
from planner.commands.options import JSON, check_count, takes_model
from planner.commands.progress_line import ProgressLine
from planner.commands.show import show
from planner.commands.termination import interrupts_end
from planner.options.planning import PlanOptions
from planner.stop import Stop

if TYPE_CHECKING:
    from planner.results import PlanResult


_GROUPS = {
    "Devices": ("--gpus", "--topology", "--memory"),
    "What is best": ("--objective", "--pin", "--recompute", "--time"),
    "The model": ("--dim", "--opdefs"),
    "Output": ("-o", "--force", "--no-models", "--json"),
}
"""The usual options."""


@click.command(cls=GroupedCommand, groups=_GROUPS, short_help="Decide how everything is split, for K GPUs.")
@takes_model
@derived(PlanOptions)
@JSON
def plan(model: Path, json_wanted: bool, **options: Any) -> int:
    """Decide how each tensor and operator of MODEL is split, and write one ONNX model per worker.

    MODEL is an ONNX file, or a name of `tofu zoo`. Ctrl-C, once there is a plan, ends the search: the best plan so far
    is written.

    \b
    Examples:
      tofu plan train.onnx --gpus 8
      tofu plan llama3-8b --topology dgx-h100 -o plan
      tofu plan train.onnx --topology h100-64x8 --gpus 64 --no-models
      tofu plan train.onnx --gpus 8 --memory 12GiB --time 5m
      tofu plan train.onnx --gpus 4 --pin fc.weight='S(0)' --pin '*.bias=R' --forbid 'act*=R'
    """
    check_count("plan", options["gpus"], options["topology"])

    def work(line: ProgressLine) -> PlanResult:
        from planner import api

        stop = Stop()
        with interrupts_end(stop):
            return api.plan(model, progress=line, notice=line.note, stop=stop, **given(PlanOptions, options))

    show(work, json_wanted, f"reading {model}")
    return EXIT_DONE
