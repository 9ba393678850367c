"""``tofu zoo``."""

from __future__ import annotations

from typing import Any

import click

from planner.commands.derived import derived, given
from planner.commands.exit_codes import EXIT_DONE
from planner.commands.options import JSON
from planner.commands.show import show
from planner.errors import UsageError
from planner.features.zoo.options import ZooOptions


@click.command(short_help="Write a published model as a training graph.")
@click.argument("name", required=False)
@derived(ZooOptions)
@JSON
def zoo(name: str | None, json_wanted: bool, **options: Any) -> int:
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

    if name is None:
        if any(value is not None for value in options.values()):
            raise UsageError("zoo: which model?", hint="write its name; `tofu zoo` alone lists them")
        show(lambda _line: api.zoo_models(), json_wanted)
        return EXIT_DONE
    show(lambda line: api.zoo(name, progress=line, **given(ZooOptions, options)), json_wanted)
    return EXIT_DONE
