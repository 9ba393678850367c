"""``tofu checkpoint``."""

from __future__ import annotations

from pathlib import Path

import click

from planner.commands.exit_codes import EXIT_DONE
from planner.commands.options import JSON, output_file
from planner.commands.show import show as show_result

_DIRECTORY = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))


@click.group(short_help="What a folder of checkpoints holds, and its weights.")
def checkpoint() -> None:
    """Look at the checkpoints that `tofu run --checkpoint-dir DIR` wrote, or take weights from them without a step.

    DIR is that folder, or one of the checkpoints in it.

    \b
    Examples:
      tofu checkpoint show ck
      tofu checkpoint export ck -o weights.safetensors
      tofu checkpoint export ck --step 200 -o trained.onnx --forward model.onnx
    """


@checkpoint.command()
@_DIRECTORY
@JSON
def show(directory: Path, json_wanted: bool) -> int:
    """List the checkpoints in DIR; each is read and held against its digests."""
    from planner import api

    show_result(lambda line: api.checkpoints(directory, progress=line), json_wanted)
    return EXIT_DONE


@checkpoint.command()
@_DIRECTORY
@output_file("Where to write it: FILE.safetensors or FILE.npz, or FILE.onnx with --forward.")
@click.option(
    "--step",
    "number",
    type=click.IntRange(min=1),
    metavar="N",
    help="After which step.  [default: the newest that is whole]",
)
@click.option(
    "--forward", type=click.Path(path_type=Path), metavar="MODEL", help="The forward model that gets the weights."
)
@JSON
def export(directory: Path, output: Path, number: int | None, forward: Path | None, json_wanted: bool) -> int:
    """Write the weights of a checkpoint in DIR, whole, and the rest of the state; no plan is needed, no step is run."""
    from planner import api

    show_result(
        lambda line: api.export_checkpoint(directory, output, number=number, forward=forward, progress=line),
        json_wanted,
    )
    return EXIT_DONE
