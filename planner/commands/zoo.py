"""``tofu zoo``."""

from __future__ import annotations

from pathlib import Path

import click

from planner.commands.exit_codes import EXIT_DONE
from planner.commands.options import (
    JSON,
)
from planner.commands.show import show
from planner.errors import UsageError


@click.command(short_help="Write a model of the papers as a training graph.")
@click.argument("name", required=False)
@click.option("--batch", type=click.IntRange(min=1), metavar="N", help="Batch size.  [default: the paper's]")
@click.option("--optimizer", metavar="NAME", help="How the weights follow.  [default: the paper's]")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to write the training graph.  [default: NAME.onnx in the working directory]",
)
@JSON
def zoo(name: str | None, batch: int | None, optimizer: str | None, output: Path | None, json_wanted: bool) -> int:
    """Write the model NAME of the papers as an ONNX training graph without weights; without NAME, list the models.

    \b
    Examples:
      tofu zoo
      tofu zoo wresnet-152-10 -o train.onnx
      tofu zoo gpt-24x2048 --batch 16
    """
    from planner import api
    from planner.report import as_json, tables

    if name is None:
        if output is not None or batch is not None or optimizer is not None:
            raise UsageError("zoo: which model?", hint="write its name; `tofu zoo` alone lists them")
        show(lambda _line: api.zoo_models(), as_json.zoo_models, tables.zoo_models, json_wanted)
        return EXIT_DONE
    show(
        lambda line: api.zoo(name, batch=batch, optimizer=optimizer, output=output, progress=line),
        as_json.zoo,
        tables.zoo,
        json_wanted,
    )
    return EXIT_DONE
