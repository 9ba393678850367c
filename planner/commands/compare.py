"""``tofu compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from planner.commands.exit_codes import EXIT_DONE
from planner.commands.options import (
    DIM,
    JSON,
    MODEL,
    OPDEFS,
    PROFILE,
    RATES,
    STATE,
    UNKNOWN_OPS,
    VALUE,
    by_name,
    check_count,
    sizes,
)
from planner.commands.show import show


@click.command(short_help="Every strategy of the literature beside the found plan.")
@MODEL
@click.option(
    "--gpus", type=click.IntRange(min=1), metavar="K", help="How many GPUs; of a topology's, the nearest so many."
)
@click.option("--topology", metavar="FILE|NAME", help="A topology file or the name of one, to estimate times for.")
@RATES
@DIM
@VALUE
@STATE
@PROFILE
@OPDEFS
@UNKNOWN_OPS
@JSON
def compare(
    model: Path,
    gpus: int | None,
    topology: str | None,
    rates: str | None,
    dims: tuple[tuple[str, str], ...],
    values: tuple[tuple[str, str], ...],
    state: Path | None,
    profile: Path | None,
    opdefs: Path | None,
    unknown_ops: Literal["refuse", "replicate"],
    json_wanted: bool,
) -> int:
    """Plan MODEL by every strategy of the literature, and print what each of them moves and holds.

    Tofu's own plan is for the least cost in bytes, and on a topology for the least estimated time, as that of
    `tofu plan` is.

    \b
    Examples:
      tofu compare train.onnx --gpus 8
      tofu compare train.onnx --gpus 4 --json
      tofu compare train.onnx --gpus 8 --rates link=25GB/s,memory=860GB/s,compute=91TFLOP/s
      tofu compare train.onnx --topology p2.8xlarge
      tofu compare train.onnx --topology dgx-h100 --gpus 4
      tofu compare train.onnx --topology dgx-h100 --profile h100.yaml
    """
    check_count("compare", gpus, topology)
    from planner.graph.reading.named_file import require_model

    require_model(model)
    from planner import api
    from planner.report import tables

    show(
        lambda line: api.compare(
            model,
            gpus=gpus,
            topology=topology,
            rates=rates,
            dim=sizes(dims),
            value=by_name(values, "--value"),
            state=state,
            profile=profile,
            opdefs=opdefs,
            unknown_ops=unknown_ops,
            progress=line,
        ),
        tables.compare,
        json_wanted,
    )
    return EXIT_DONE
