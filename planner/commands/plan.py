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
    "Devices": ("--gpus", "--topology", "--memory", "--rates", "--profile", "--device"),
    "What is best": ("--objective", "--strategy", "--inputs", "--share", "--op-schedule", "--recompute"),
    "Your own wishes": ("--pin", "--forbid", "--replicate"),
    "The search": ("--effort", "--time"),
    "The model": ("--dim", "--value", "--state", "--opdefs", "--unknown-ops"),
    "Output": ("--out", "--force", "--no-models", "--sharding-annotations", "--json"),
}


@click.command(cls=GroupedCommand, groups=_GROUPS, short_help="Decide how everything is split, for K GPUs.")
@takes_model
@derived(PlanOptions)
@JSON
def plan(model: Path, json_wanted: bool, **options: Any) -> int:
    """Decide how each tensor and operator of MODEL is split, and write one ONNX model per worker.

    Ctrl-C, once there is a plan, ends the search: the best plan so far is written.

    \b
    Examples:
      tofu plan train.onnx --gpus 8
      tofu plan train.onnx --topology p2.8xlarge --out plan
      tofu plan train.onnx --topology dgx-h100 --gpus 4
      tofu plan train.onnx --topology dgx-h100 --objective bytes
      tofu plan train.onnx --topology dgx-h100 --profile h100.yaml
      tofu plan train.onnx --gpus 8 --memory 12GiB
      tofu plan train.onnx --gpus 8 --rates link=25GB/s,memory=860GB/s,compute=91TFLOP/s
      tofu plan train.onnx --gpus 8 --time 5m
      tofu plan train.onnx --topology h100-64x8 --no-models --out plan
      tofu plan train.onnx --gpus 4 --strategy data --json
      tofu plan train.onnx --gpus 4 --pin fc.weight='S(0)' --pin '*.bias=R' --forbid 'act*=R'
      tofu plan train.onnx --gpus 4 --replicate none
      tofu plan train.onnx --gpus 8 --memory 4GiB --op-schedule whole
      tofu plan train.onnx --gpus 8 --recompute all
      tofu plan train.onnx --gpus 8 --recompute 'h.*.scores' --recompute '*.gelu'
      tofu plan train.onnx --gpus 4 --opdefs my_ops.py
      tofu plan vad.onnx --gpus 2 --dim batch=8 --value sr=16000
    """
    check_count("plan", options["gpus"], options["topology"])

    def work(line: ProgressLine) -> PlanResult:
        from planner import api

        stop = Stop()
        with interrupts_end(stop):
            return api.plan(model, progress=line, notice=line.note, stop=stop, **given(PlanOptions, options))

    show(work, json_wanted, f"reading {model}")
    return EXIT_DONE
