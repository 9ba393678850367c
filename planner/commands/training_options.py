"""The options that say how a model is trained: of every command that makes a training graph of a forward model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from planner.commands.options import LOSS_SCALE, NUMBERS, OPTIMIZERS, POSITIVE, SHARE

Function = TypeVar("Function", bound=Callable[..., Any])

TRAINING_GROUPS: Final = {
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
}
"""By heading of a command's help, their names."""
_OPTIONS: Final = (
    click.option(
        "--loss",
        metavar="NAME",
        help="What the training lowers: softmax_cross_entropy, nll, mse, l1, "
        "bce_with_logits, or output:NAME for an output that is one; none for a model of gradients.",
    ),
    click.option("--loss-input", metavar="NAME", help="The output, or an inner tensor, that the loss looks at."),
    click.option("--class-weights", metavar="W,W,...", type=NUMBERS, help="One for each class, of losses by labels."),
    click.option("--ignore-index", type=int, metavar="LABEL", help="The label that counts for nothing."),
    click.option(
        "--class-axis", type=int, metavar="N", help="The dim that holds the classes, where the ops do not tell."
    ),
    click.option("--shift", is_flag=True, help="Train the next token: the labels are the tokens, one position on."),
    click.option("--tokens", metavar="NAME", help="The input of tokens, for --shift, where there are several."),
    click.option("--optimizer", type=click.Choice(OPTIMIZERS), help="How the weights follow."),
    click.option("--lr", type=POSITIVE, default=0.01, show_default=True, help="Learning rate."),
    click.option("--momentum", type=SHARE, help="Of momentum and nesterov.  [default: 0.9]"),
    click.option("--betas", type=SHARE, nargs=2, metavar="A B", help="Of adam and adamw.  [default: 0.9 0.999]"),
    click.option("--epsilon", type=POSITIVE, help="Of adagrad, adam and adamw.  [default: 1e-10, 1e-8, 1e-8]"),
    click.option("--decay-factor", type=POSITIVE, help="Of adagrad: update T has the rate lr / (1 + T factor)."),
    click.option(
        "--weight-decay", type=POSITIVE, metavar="X", help="Weights are drawn to 0; in adamw beside the gradient."
    ),
    click.option(
        "--no-decay", multiple=True, metavar="PATTERN", help="Parameters that are not decayed (*, ?); repeatable."
    ),
    click.option("--no-decay-vectors", is_flag=True, help="Biases and scales of normalisations are not decayed."),
    click.option(
        "--train",
        multiple=True,
        metavar="PATTERN",
        help="Constants that are trained, whatever is inferred (*, ?); repeatable.",
    ),
    click.option(
        "--freeze",
        multiple=True,
        metavar="PATTERN",
        help="Constants that stay as they are (*, ?); repeatable. Of two, the longer counts.",
    ),
    click.option(
        "--params",
        multiple=True,
        metavar="PATTERN",
        help="Inputs that are weights, where names and defaults do not say so (*, ?); repeatable.",
    ),
    click.option(
        "--clip-norm", type=POSITIVE, metavar="X", help="Clip gradients to this norm, taken over all of them."
    ),
    click.option(
        "--accumulate", type=click.IntRange(min=1), metavar="N", help="Micro-batches to a step.  [default: 1]"
    ),
    click.option(
        "--precision",
        type=click.Choice(["float32", "float16", "bfloat16"]),
        help="What the model computes in; parameters stay float32.  [default: float32]",
    ),
    click.option("--loss-scale", metavar="X|dynamic", type=LOSS_SCALE, help="For gradients too small for float16."),
    click.option(
        "--gradients",
        type=click.Path(path_type=Path),
        metavar="PAIRS.yaml",
        help="Of a model of gradients: which is whose, if names, shapes and order do not tell.",
    ),
    click.option(
        "--batchnorm",
        type=click.Choice(["train", "frozen"]),
        default="train",
        show_default=True,
        help="BatchNormalization by the statistics of the batch, or by those that the model holds.",
    ),
    click.option(
        "--dropout", type=click.Choice(["train", "off"]), help="Whether Dropout drops.  [default: as the model has it]"
    ),
)


def training_options(function: Function) -> Function:
    """Gives a command these options."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def stated(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a command's options that were given, or have a default of their own; a number may be 0."""
    return {name: value for name, value in options.items() if not (value is None or value is False or value == ())}
