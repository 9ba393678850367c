"""``tofu grad``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.commands.exit_codes import EXIT_DONE
from planner.commands.grouped_help import GroupedCommand
from planner.commands.options import DIM, JSON, MODEL, STATE, VALUE, by_name, sizes
from planner.commands.show import show
from planner.commands.training_options import TRAINING_GROUPS, stated, training_options

_GROUPS = {
    **TRAINING_GROUPS,
    "The model": ("--batch", "--dim", "--value", "--gradients", "--state"),
    "Output": ("-o", "--format", "--verify", "--json"),
}


@click.command(cls=GroupedCommand, groups=_GROUPS, short_help="Build the training graph of a forward model.")
@MODEL
@training_options
@STATE
@click.option("--format", "form", type=click.Choice(["onnx", "training-info"]),
              help="The step in standard operators, or ONNX's TrainingInfoProto.  [default: onnx]")  # fmt: skip
@click.option("--batch", type=click.IntRange(min=1), metavar="N",
              help="Batch size, where it is to be another; of a symbolic dim --dim says the size.")  # fmt: skip
@DIM
@VALUE
@click.option("--verify", is_flag=True,
              help="Hold MODEL as it is read against what the stock runtime makes of the file.")  # fmt: skip
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to write the training graph.  [default: MODEL.train.onnx in the working directory]",
)
@JSON
def grad(
    model: Path,
    batch: int | None,
    dims: tuple[tuple[str, str], ...],
    values: tuple[tuple[str, str], ...],
    output: Path | None,
    json_wanted: bool,
    **others: Any,
) -> int:
    """Build the training graph of MODEL: loss, gradients and the optimizer's step in standard operators.

    MODEL is a forward model; or a graph of gradients, a model with training information, or a folder of
    onnxruntime-training's artifacts, which need no --loss.

    \b
    Examples:
      tofu grad resnet50.onnx --loss softmax_cross_entropy --optimizer momentum --lr 0.05 --batch 8
      tofu grad mlp.onnx --loss mse --optimizer sgd --dim batch=64 -o mlp.train.onnx
      tofu grad gpt2.onnx --loss softmax_cross_entropy --shift --optimizer adamw --lr 3e-4
      tofu grad bert.onnx --loss softmax_cross_entropy --optimizer adamw --weight-decay 0.01 --no-decay-vectors
      tofu grad net.onnx --loss nll --optimizer adam --precision float16 --loss-scale dynamic --clip-norm 1
      tofu grad bert.onnx --loss softmax_cross_entropy --optimizer adam --freeze 'bert.*' --train 'bert.pooler.*'
      tofu grad vad.onnx --loss bce_with_logits --optimizer sgd --dim batch=8 --value sr=16000
      tofu grad gradients.onnx --optimizer sgd --gradients pairs.yaml
      tofu grad artifacts/ -o train.onnx
      tofu grad net.onnx --loss mse --optimizer adam --format training-info -o net.training.onnx
    """
    from planner.graph.reading.named_file import require_model

    require_model(model)
    from planner import api
    from planner.report import tables

    show(
        lambda line: api.grad(
            model,
            batch=batch,
            dim=sizes(dims),
            value=by_name(values, "--value"),
            output=output,
            progress=line,
            **stated(others),
        ),
        tables.grad,
        json_wanted,
    )
    return EXIT_DONE
