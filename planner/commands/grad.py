"""``tofu grad``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click

from planner.commands.exit_codes import EXIT_DONE
from planner.commands.grouped_help import GroupedCommand
from planner.commands.options import (
    DIM,
    JSON,
    LOSS_SCALE,
    MODEL,
    NUMBERS,
    OPTIMIZERS,
    POSITIVE,
    SHARE,
    STATE,
    VALUE,
    by_name,
    sizes,
)
from planner.commands.show import show

_GROUPS = {
    "The loss": (
        "--loss",
        "--loss-input",
        "--class-axis",
        "--class-weights",
        "--ignore-index",
        "--shift",
        "--tokens",
    ),
    "The optimizer": (
        "--optimizer",
        "--lr",
        "--momentum",
        "--betas",
        "--epsilon",
        "--decay-factor",
        "--weight-decay",
        "--no-decay",
        "--no-decay-vectors",
        "--clip-norm",
        "--accumulate",
    ),
    "What is trained": ("--train", "--freeze", "--params"),
    "How the model computes": ("--precision", "--loss-scale", "--batchnorm", "--dropout"),
    "The model": ("--batch", "--dim", "--value", "--gradients", "--state"),
    "Output": ("-o", "--format", "--verify", "--json"),
}


@click.command(cls=GroupedCommand, groups=_GROUPS, short_help="Build the training graph of a forward model.")
@MODEL
@click.option("--loss", metavar="NAME", help="What the training lowers: softmax_cross_entropy, nll, mse, l1, "
              "bce_with_logits, or output:NAME for an output that is one; none for a model of gradients.")  # fmt: skip
@click.option("--loss-input", metavar="NAME", help="The output, or an inner tensor, that the loss looks at.")
@click.option("--class-weights", metavar="W,W,...", type=NUMBERS, help="One for each class, of losses by labels.")
@click.option("--ignore-index", type=int, metavar="LABEL", help="The label that counts for nothing.")
@click.option("--class-axis", type=int, metavar="N", help="The dim that holds the classes, where the ops do not tell.")
@click.option("--shift", is_flag=True, help="Train the next token: the labels are the tokens, one position on.")
@click.option("--tokens", metavar="NAME", help="The input of tokens, for --shift, where there are several.")
@click.option("--optimizer", type=click.Choice(OPTIMIZERS), help="How the weights follow.")
@click.option("--lr", type=POSITIVE, default=0.01, show_default=True, help="Learning rate.")
@click.option("--momentum", type=SHARE, help="Of momentum and nesterov.  [default: 0.9]")
@click.option("--betas", type=SHARE, nargs=2, metavar="A B", help="Of adam and adamw.  [default: 0.9 0.999]")
@click.option("--epsilon", type=POSITIVE, help="Of adagrad, adam and adamw.  [default: 1e-10, 1e-8, 1e-8]")
@click.option("--decay-factor", type=POSITIVE, help="Of adagrad: update T has the rate lr / (1 + T factor).")
@click.option(
    "--weight-decay", type=POSITIVE, metavar="X", help="Weights are drawn to 0; in adamw beside the gradient."
)
@click.option(
    "--no-decay", multiple=True, metavar="PATTERN", help="Parameters that are not decayed (*, ?); repeatable."
)
@click.option("--no-decay-vectors", is_flag=True, help="Biases and scales of normalisations are not decayed.")
@click.option("--train", multiple=True, metavar="PATTERN",
              help="Constants that are trained, whatever is inferred (*, ?); repeatable.")  # fmt: skip
@click.option("--freeze", multiple=True, metavar="PATTERN",
              help="Constants that stay as they are (*, ?); repeatable. Of two, the longer counts.")  # fmt: skip
@click.option("--params", multiple=True, metavar="PATTERN",
              help="Inputs that are weights, where names and defaults do not say so (*, ?); repeatable.")  # fmt: skip
@click.option("--clip-norm", type=POSITIVE, metavar="X", help="Clip gradients to this norm, taken over all of them.")
@click.option("--accumulate", type=click.IntRange(min=1), metavar="N", help="Micro-batches to a step.  [default: 1]")
@click.option("--precision", type=click.Choice(["float32", "float16", "bfloat16"]),
              help="What the model computes in; parameters stay float32.  [default: float32]")  # fmt: skip
@click.option("--loss-scale", metavar="X|dynamic", type=LOSS_SCALE, help="For gradients too small for float16.")
@click.option("--gradients", type=click.Path(path_type=Path), metavar="PAIRS.yaml",
              help="Of a model of gradients: which is whose, if names, shapes and order do not tell.")  # fmt: skip
@STATE
@click.option("--format", "form", type=click.Choice(["onnx", "training-info"]),
              help="The step in standard operators, or ONNX's TrainingInfoProto.  [default: onnx]")  # fmt: skip
@click.option("--batch", type=click.IntRange(min=1), metavar="N",
              help="Batch size, where it is to be another; of a symbolic dim --dim says the size.")  # fmt: skip
@click.option(
    "--batchnorm",
    type=click.Choice(["train", "frozen"]),
    default="train",
    show_default=True,
    help="BatchNormalization by the statistics of the batch, or by those that the model holds.",
)
@click.option("--dropout", type=click.Choice(["train", "off"]),
              help="Whether Dropout drops.  [default: as the model has it]")  # fmt: skip
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
    loss: str | None,
    optimizer: str | None,
    lr: float,
    momentum: float | None,
    batch: int | None,
    batchnorm: Literal["train", "frozen"],
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
    stated = {name: value for name, value in others.items() if value not in (None, (), False)}
    if momentum is not None:
        stated["momentum"] = momentum
    from planner import api
    from planner.report import as_json, tables

    show(
        lambda line: api.grad(
            model,
            loss=loss,
            optimizer=optimizer,
            lr=lr,
            batch=batch,
            batchnorm=batchnorm,
            dim=sizes(dims),
            value=by_name(values, "--value"),
            output=output,
            progress=line,
            **stated,
        ),
        as_json.grad,
        tables.grad,
        json_wanted,
    )
    return EXIT_DONE
