"""``tofu profile``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from planner.commands.exit_codes import EXIT_DONE
from planner.commands.options import CUSTOM_OPS, DIM, JSON, MODEL, OPDEFS, STATE, UNKNOWN_OPS, VALUE, by_name, sizes
from planner.commands.show import show


@click.command(short_help="Measure what ops take on this machine, for estimates of time.")
@MODEL
@click.option("--gpus", type=click.IntRange(min=1), metavar="K", help="Also parts of ops, as K workers compute them.")
@click.option(
    "--topology", metavar="FILE|NAME", help="The same, for the workers of a topology and its plans for the least time."
)
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="What to measure on."
)
@click.option(
    "--memory",
    metavar="BYTES",
    help="What the tensors of one op may take; larger ones are not measured.  [default: half of what is free]",
)
@DIM
@VALUE
@STATE
@OPDEFS
@UNKNOWN_OPS
@CUSTOM_OPS
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to write the profile: .yaml or .json.  [default: MODEL.profile.yaml in the working directory]",
)
@JSON
def profile(
    model: Path,
    gpus: int | None,
    topology: str | None,
    device: Literal["cpu", "cuda"],
    memory: str | None,
    dims: tuple[tuple[str, str], ...],
    values: tuple[tuple[str, str], ...],
    state: Path | None,
    opdefs: Path | None,
    unknown_ops: Literal["refuse", "replicate"],
    custom_ops: tuple[Path, ...],
    out: Path | None,
    json_wanted: bool,
) -> int:
    """Time every op of MODEL on this machine, whole and in the parts that a plan may give to a worker.

    `tofu plan` and `tofu compare` take the file with --profile, for estimates of time and for --objective time. Where
    it lacks an op they say so (docs/topologies.md).

    \b
    Examples:
      tofu profile train.onnx
      tofu profile train.onnx --gpus 4 --out train.yaml
      tofu profile train.onnx --topology dgx-h100 --device cuda --out h100.json
      tofu plan train.onnx --topology dgx-h100 --objective time --profile h100.json
    """
    from planner.graph.reading.named_file import require_model

    require_model(model)
    from planner import api
    from planner.report import device_profile

    show(
        lambda line: api.profile(
            model,
            gpus=gpus,
            topology=topology,
            device=device,
            memory=memory,
            dim=sizes(dims),
            value=by_name(values, "--value"),
            state=state,
            opdefs=opdefs,
            unknown_ops=unknown_ops,
            custom_ops=custom_ops,
            out=out,
            progress=line,
            notice=line.note,
        ),
        device_profile.print_profile,
        json_wanted,
    )
    return EXIT_DONE
