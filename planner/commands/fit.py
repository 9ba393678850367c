"""``tofu fit``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click

from planner.commands.exit_codes import EXIT_DONE, EXIT_NO
from planner.commands.grouped_help import GroupedCommand
from planner.commands.options import DIM, JSON, MODEL, OPDEFS, STATE, UNKNOWN_OPS, VALUE, by_name, sizes
from planner.commands.show import show
from planner.commands.training_options import TRAINING_GROUPS, stated, training_options

_GROUPS = {
    "What there is": ("--memory", "--topology", "--gpus", "--within"),
    "The model": ("--batch", "--dim", "--value", "--gradients", "--state", "--opdefs", "--unknown-ops"),
    **TRAINING_GROUPS,
    "Output": ("--plan", "--out", "--force", "--page", "--json"),
}


@click.command(cls=GroupedCommand, groups=_GROUPS, short_help="How many GPUs hold a model, and with which batch.")
@MODEL
@click.option("--memory", metavar="BYTES",
              help="What the tensors of a worker may take, such as 80GiB.  "
                   "[default: what the topologies' devices have]")  # fmt: skip
@click.option("--topology", metavar="FILE|NAME", multiple=True,
              help="A topology file, or one that ships with tofu by its name; repeatable.")  # fmt: skip
@click.option("--gpus", metavar="1..64|2,4,8",
              help="Numbers of GPUs: a list, or a range, of which the ends, the powers of two and what the topology's "
                   "levels join are looked at.  [default: 1 to all of the topology's, or to 64]")  # fmt: skip
@click.option("--within", metavar="TIME", help="An iteration must not be estimated to take longer than, say, 0.5s.")
@click.option("--batch", metavar="1..512|N",
              help="Where the largest batch is looked for; or one number: the batch of the plans.  "
                   "[default: 1..512]")  # fmt: skip
@DIM
@VALUE
@STATE
@OPDEFS
@UNKNOWN_OPS
@training_options
@click.option("--plan", type=click.IntRange(min=1), metavar="N",
              help="Write the plan for N GPUs; `tofu build` adds the workers' models, as `tofu run` does.")  # fmt: skip
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where to write it.  [default: MODEL.tofuN in the working directory]",
)
@click.option("--force", is_flag=True, help="Replace a plan that is there; a folder with anything else in it stays.")
@click.option(
    "--page",
    type=click.Path(path_type=Path),
    metavar="FILE.html",
    help="Write the table and a chart, memory against GPUs, as a page.",
)
@JSON
def fit(
    model: Path,
    memory: str | None,
    topology: tuple[str, ...],
    gpus: str | None,
    within: str | None,
    batch: str | None,
    dims: tuple[tuple[str, str], ...],
    values: tuple[tuple[str, str], ...],
    state: Path | None,
    opdefs: Path | None,
    unknown_ops: Literal["refuse", "replicate"],
    plan: int | None,
    out: Path | None,
    force: bool,
    page: Path | None,
    json_wanted: bool,
    **training: Any,
) -> int:
    """Say how many GPUs hold MODEL, what plans take on each number of them, and how large the batch may be.

    MODEL is a training graph; a forward model, with the options of `tofu grad`; or a name of `tofu zoo`. Nothing is
    written unless it is asked for. If no number of GPUs holds it, the exit code is 1.

    \b
    Examples:
      tofu fit train.onnx --memory 80GiB
      tofu fit llama3-8b --topology dgx-h100 --topology h100-64x8
      tofu fit train.onnx --memory 24GiB --gpus 2,3,6
      tofu fit train.onnx --topology dgx-h100 --within 0.5s
      tofu fit resnet50.onnx --loss softmax_cross_entropy --optimizer adam --memory 16GiB --batch 1..256
      tofu fit mlp.onnx --loss mse --optimizer sgd --dim batch=64 --memory 2GiB
      tofu fit train.onnx --memory 40GiB --plan 8 --out plan
      tofu fit train.onnx --memory 40GiB --page fit.html
    """
    from planner import api
    from planner.report import fitting

    found = show(
        lambda line: api.fit(
            model,
            memory=memory,
            topology=topology,
            gpus=gpus,
            within=within,
            batch=batch,
            dim=sizes(dims),
            value=by_name(values, "--value"),
            state=state,
            opdefs=opdefs,
            unknown_ops=unknown_ops,
            plan=plan,
            out=out,
            force=force,
            page=page,
            progress=line,
            **stated(training),
        ),
        fitting.print_fit,
        json_wanted,
    )
    return EXIT_DONE if found.is_held else EXIT_NO
