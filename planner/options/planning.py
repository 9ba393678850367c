"""Options of planning: of ``plan``, ``check``, ``compare`` and ``profile``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from planner.options import DimOptions, Model, ReadOptions, UnknownOps, argument, option, options
from planner.progress import Progress, silent
from planner.records import Positive
from planner.stop import Stop

STRATEGIES = (
    *("tofu", "tofu-recursion", "soybean", "soybean-general", "soybean-levels", "layer-wise", "data", "model", "mixed"),
    *("hybrid", "megatron", "fsdp", "fsdp-megatron", "context", "expert", "distcnn", "allrow-greedy", "spartan"),
    *("equalchop", "icml18"),
)
"""Those of planner.search.literature.methods, which is not imported for its names alone."""


@options
class PlanOptions(ReadOptions):
    """What ``tofu plan`` and ``planner.plan`` are asked for."""

    model: Model = argument(kw_only=False)
    gpus: Positive | None = option(
        "How many GPUs, each a worker of the plan; of a topology's, the nearest so many.  [default: all of those]",
        default=None,
        metavar="K",
    )
    topology: str | None = option(
        "A topology file, or one that ships with tofu by its name.", default=None, metavar="FILE|NAME"
    )
    memory: str | int | None = option(
        "What the tensors of a worker may take, such as 12GiB.  [default: what the topology's devices have]",
        default=None,
        metavar="BYTES",
    )
    objective: Literal["bytes", "time"] | None = option(
        "The least cost in bytes, moved and penalty, or the least estimated time on the topology.  [default: time with "
        "--topology, else bytes]",
        default=None,
    )
    rates: str | None = option(
        "What repeated and uneven work is worth in moved bytes: link=450GB/s,memory=3.35TB/s,compute=60TFLOP/s.  "
        "[default: a memory 8 times as fast as a link, 128 operations in a byte's time]",
        default=None,
        metavar="RATES",
    )
    strategy: str = option(
        f"The found plan, or one of the literature to compare it with: {', '.join(STRATEGIES[1:])}.",
        default="tofu",
        choices=STRATEGIES,
        metavar="NAME",
        shows_default=True,
    )
    pin: Mapping[str, str] | None = option(
        "Hold a tensor to a tiling, such as W=S(0), 'W=S(0)/2 R/2', '*.weight=R' or dx=P; repeatable.",
        default=None,
        metavar="TENSOR=TILING",
    )
    forbid: Sequence[tuple[str, str]] = option(
        "Take a placement from a tensor, or from all that match, such as W=S(1) or 'act*=R'; repeatable.",
        default=(),
        metavar="TENSOR=PLACEMENT",
    )
    replicate: Literal["weights", "all", "none"] = option(
        "What may be replicated where it can be cut: state and inputs, any tensor, or nothing.",
        default="all",
        shows_default=True,
    )
    inputs: Literal["free", "partitioned"] = option(
        "Inputs arrive as the plan wants them, for nothing, or in disjoint parts; what is needed beyond is charged.",
        default="free",
        shows_default=True,
        flags=("--input-tiling",),
    )
    share: Literal["none", "auto"] = option(
        "What several readers have brought to them: once for each, or once for all where that saves bytes.",
        default="auto",
        shows_default=True,
    )
    op_schedule: Literal["auto", "whole", "stepped"] = option(
        "Products and convolutions at once, or chunk by chunk while operands circulate: where memory asks, or all.",
        default="auto",
        shows_default=True,
    )
    recompute: str | Sequence[str] = option(
        "Activations that are computed again for the backward pass: what is best where memory asks for it, none, all "
        "inside of repeated blocks, or those that match; patterns are repeatable.  [default: auto]",
        default="auto",
        metavar="auto|none|all|PATTERN",
        is_repeated=True,
    )
    effort: Literal["quick", "normal", "thorough"] | None = option(
        "Work on a bound for all plans, and on plans nearer to it: none, as much as seconds do, or minutes.  "
        "[default: normal, and thorough after it with --time]",
        default=None,
    )
    time: str | None = option(
        "End the search after 30s, 5m or 1h with the best plan so far, as Ctrl-C does.  [default: when all is done]",
        default=None,
        metavar="TIME",
    )
    out: Path | None = option(
        "Where to write the plan.  [default: MODEL.tofuK in the working directory]",
        default=None,
        metavar="DIR",
        flags=("-o", "--output"),
    )
    force: bool = option("Replace a plan that is there; a folder with anything else in it stays.", default=False)
    models: bool = option(
        "Write the plan alone; `tofu build` writes the workers' models, and so does `tofu run`. Of more than 4 "
        "million ops times workers memory and time are then what tables say, at least.",
        default=True,
    )
    profile: Path | None = option(
        "What ops were measured to take on the topology's devices, by `tofu profile`.", default=None, metavar="FILE"
    )
    opdefs: Path | None = option(
        "Descriptions of your own operators; the file is executed (docs/operators.md).",
        default=None,
        metavar="FILE.py",
    )
    unknown_ops: UnknownOps = option(
        "Operators without a description: an error, or every worker runs them whole.",
        default="refuse",
        shows_default=True,
    )
    progress: Progress = silent
    notice: Callable[[str], None] = lambda line: None
    stop: Stop | None = None


@options
class CheckOptions(DimOptions):
    """What ``tofu check`` and ``planner.check`` are asked for."""

    models: Path | Sequence[Path] = argument(kw_only=False)
    gpus: int | Sequence[int] | None = option(
        "How many GPUs; each model for each.  [default: those of the plan]", default=None, metavar="K,K,..."
    )
    baseline: Path = option("What plans cost before; --update writes it.", metavar="FILE.json")
    max_increase: str = option("How much more is allowed.", default="0%", shows_default=True, metavar="SHARE")
    update: bool = option("Write what the plans cost into the baseline; other models in it stay.", default=False)
    progress: Progress = silent
