"""``tofu plan``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from planner.commands.exit_codes import EXIT_DONE
from planner.commands.grouped_help import GroupedCommand
from planner.commands.options import (
    DIM,
    JSON,
    MODEL,
    OPDEFS,
    PROFILE,
    RATES,
    STATE,
    STRATEGIES,
    UNKNOWN_OPS,
    VALUE,
    Assignment,
    by_name,
    check_count,
    sizes,
)
from planner.commands.progress_line import ProgressLine
from planner.commands.show import show
from planner.commands.termination import interrupts_end
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
@MODEL
@click.option(
    "--gpus",
    type=click.IntRange(min=1),
    metavar="K",
    help="How many GPUs, each a worker of the plan; of a topology's, the nearest so many.  [default: all of those]",
)
@click.option("--topology", metavar="FILE|NAME", help="A topology file, or one that ships with tofu by its name.")
@click.option(
    "--objective",
    type=click.Choice(["bytes", "time"]),
    help="The least cost in bytes, moved and excess, or the least estimated time on the topology.  [default: time with "
    "--topology, else bytes]",
)
@RATES
@click.option(
    "--memory",
    metavar="BYTES",
    help="What the tensors of a worker may take, such as 12GiB.  [default: what the topology's devices have]",
)
@DIM
@VALUE
@click.option(
    "--strategy",
    type=click.Choice(STRATEGIES),
    default="tofu",
    show_default=True,
    metavar="NAME",
    help=f"The found plan, or one of the literature to compare it with: {', '.join(STRATEGIES[1:])}.",
)
@click.option(
    "--pin",
    "pins",
    type=Assignment("TENSOR=TILING"),
    multiple=True,
    help="Hold a tensor to a tiling, such as W=S(0), 'W=S(0)/2 R/2', '*.weight=R' or dx=P; repeatable.",
)
@click.option(
    "--forbid",
    type=Assignment("TENSOR=PLACEMENT"),
    multiple=True,
    help="Take a placement from a tensor, or from all that match, such as W=S(1) or 'act*=R'; repeatable.",
)
@click.option(
    "--replicate",
    type=click.Choice(["weights", "all", "none"]),
    default="all",
    show_default=True,
    help="What may be replicated where it can be cut: state and inputs, any tensor, or nothing.",
)
@click.option(
    "--inputs",
    type=click.Choice(["free", "partitioned"]),
    default="free",
    show_default=True,
    help="Inputs arrive as the plan wants them, for nothing, or in disjoint parts; what is needed beyond is charged.",
)
@click.option(
    "--share",
    type=click.Choice(["none", "auto"]),
    default="auto",
    show_default=True,
    help="What several readers have brought to them: once for each, or once for all where that saves bytes.",
)
@click.option(
    "--op-schedule",
    type=click.Choice(["auto", "whole", "stepped"]),
    default="auto",
    show_default=True,
    help="Products and convolutions at once, or chunk by chunk while operands circulate: where memory asks, or all.",
)
@click.option(
    "--recompute",
    multiple=True,
    metavar="auto|none|all|PATTERN",
    help="Activations that are computed again for the backward pass: what is best where memory asks for it, none, all "
    "inside of repeated blocks, or those that match; patterns are repeatable.  [default: auto]",
)
@click.option(
    "--effort",
    type=click.Choice(["quick", "normal", "thorough"]),
    help="Work on a bound for all plans, and on plans nearer to it: none, as much as seconds do, or minutes.  "
    "[default: normal; thorough with --time]",
)
@click.option(
    "--time",
    "time",
    metavar="TIME",
    help="End the search after 30s, 5m or 1h with the best plan so far, as Ctrl-C does.  [default: when all is done]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where to write the plan.  [default: MODEL.tofuK in the working directory]",
)
@click.option("--force", is_flag=True, help="Replace a plan that is there; a folder with anything else in it stays.")
@click.option(
    "--no-models",
    "without_models",
    is_flag=True,
    help="Write the plan alone; `tofu build` writes the workers' models, and so does `tofu run`. Of more than 4 "
    "million ops times workers memory and time are then what tables say, at least.",
)
@STATE
@click.option(
    "--sharding-annotations",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the model with the tilings as ONNX sharding annotations.",
)
@PROFILE
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Where the plan is to run; for cuda, say which ops have no CUDA kernel. The plan is the same.",
)
@OPDEFS
@UNKNOWN_OPS
@JSON
def plan(
    model: Path,
    gpus: int | None,
    topology: str | None,
    objective: Literal["bytes", "time"] | None,
    rates: str | None,
    memory: str | None,
    dims: tuple[tuple[str, str], ...],
    values: tuple[tuple[str, str], ...],
    strategy: str,
    pins: tuple[tuple[str, str], ...],
    forbid: tuple[tuple[str, str], ...],
    replicate: Literal["weights", "all", "none"],
    inputs: Literal["free", "partitioned"],
    share: Literal["none", "auto"],
    op_schedule: Literal["auto", "whole", "stepped"],
    recompute: tuple[str, ...],
    effort: Literal["quick", "normal", "thorough"] | None,
    time: str | None,
    out: Path | None,
    force: bool,
    without_models: bool,
    state: Path | None,
    sharding_annotations: Path | None,
    profile: Path | None,
    device: Literal["cpu", "cuda"],
    opdefs: Path | None,
    unknown_ops: Literal["refuse", "replicate"],
    json_wanted: bool,
) -> int:
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
    check_count("plan", gpus, topology)
    from planner.graph.reading.named_file import require_model

    require_model(model)
    stated: dict[str, Any] = {} if state is None else {"state": state}
    from planner.report import tables

    def work(line: ProgressLine) -> PlanResult:
        from planner import api

        stop = Stop()
        with interrupts_end(stop):
            return api.plan(
                model,
                gpus=gpus,
                topology=topology,
                objective=objective,
                rates=rates,
                memory=memory,
                dim=sizes(dims),
                value=by_name(values, "--value"),
                strategy=strategy,
                pin=by_name(pins, "--pin"),
                forbid=tuple(dict.fromkeys(forbid)),
                replicate=replicate,
                inputs=inputs,
                share=share,
                op_schedule=op_schedule,
                recompute=recompute or "auto",
                effort=effort,
                time=time,
                out=out,
                force=force,
                models=not without_models,
                sharding_annotations=sharding_annotations,
                profile=profile,
                opdefs=opdefs,
                unknown_ops=unknown_ops,
                device=device,
                progress=line,
                notice=line.note,
                stop=stop,
                **stated,
            )

    show(work, tables.plan, json_wanted, f"reading {model}")
    return EXIT_DONE
