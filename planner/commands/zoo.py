"""``tofu zoo``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.commands.exit_codes import EXIT_DONE
from planner.commands.options import JSON
from planner.commands.show import show
from planner.errors import UsageError


@click.command(short_help="Write a published model as a training graph.")
@click.argument("name", required=False)
@click.option("--batch", type=click.IntRange(min=1), metavar="N", help="Batch size.  [default: the paper's]")
@click.option("--optimizer", metavar="NAME", help="How the weights follow.  [default: the paper's]")
@click.option("--precision", type=click.Choice(["float32", "bfloat16"]),
              help="What a network of today computes in.  [default: what it was trained in]")  # fmt: skip
@click.option("--seq", type=click.IntRange(min=1), metavar="N",
              help="Tokens of a sample, of a network of language.  [default: its own]")  # fmt: skip
@click.option("--layers", type=click.IntRange(min=1), metavar="N",
              help="Blocks of a network of today.  [default: as published]")  # fmt: skip
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to write the training graph.  [default: NAME.onnx in the working directory]",
)
@JSON
def zoo(name: str | None, output: Path | None, json_wanted: bool, **asked: Any) -> int:
    """Write the published model NAME as an ONNX training graph without weights; without NAME, list the models.

    They are the papers' models, and networks of today: Llama 3, ViT-H, DiT-XL, Stable Diffusion's U-Net, Whisper large,
    Mixtral. Weights are of float32; --precision says what is computed in.

    \b
    Examples:
      tofu zoo
      tofu zoo wresnet-152-10 -o train.onnx
      tofu zoo gpt-24x2048 --batch 16
      tofu zoo llama3-8b --batch 4 --seq 8192
      tofu zoo moe-8x7b --layers 2 --precision float32
    """
    from planner import api
    from planner.report import tables
    from planner.results import ZooModels

    if name is None:
        if output is not None or any(value is not None for value in asked.values()):
            raise UsageError("zoo: which model?", hint="write its name; `tofu zoo` alone lists them")
        show(lambda _line: ZooModels(api.zoo_models()), tables.zoo_models, json_wanted)
        return EXIT_DONE
    show(
        lambda line: api.zoo(name, output=output, progress=line, **asked),
        tables.zoo,
        json_wanted,
    )
    return EXIT_DONE
