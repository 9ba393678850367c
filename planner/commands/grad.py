"""``tofu grad``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.commands.derived import derived, given
from planner.commands.exit_codes import EXIT_DONE
from planner.commands.grouped_help import GroupedCommand
from planner.commands.options import JSON, takes_model
from planner.commands.show import show
from planner.options.training import GradOptions

_GROUPS = {
    "The loss": ("--loss", "--loss-input", "--ignore-index", "--shift"),
    "The optimizer": ("--optimizer", "--lr", "--weight-decay", "--group", "--clip-norm"),
    "What is trained, and how": ("--train", "--freeze", "--precision"),
    "The model": ("--batch", "--dim"),
    "Output": ("-o", "--json"),
}
"""The usual options."""


@click.command(cls=GroupedCommand, groups=_GROUPS, short_help="Build the training graph of a forward model.")
@takes_model
@derived(GradOptions)
@JSON
def grad(model: Path, json_wanted: bool, **options: Any) -> int:
    """Build the training graph of MODEL: loss, gradients and the optimizer's step in standard operators.

    MODEL is a forward model; or a graph of gradients, a model with training information, or a folder of
    onnxruntime-training's artifacts, which need no --loss.

    \b
    Examples:
      tofu grad resnet50.onnx --loss softmax_cross_entropy --optimizer momentum --lr 0.05 --batch 8
      tofu grad mlp.onnx --loss mse --optimizer sgd --dim batch=64 -o mlp.train.onnx
      tofu grad gpt2.onnx --loss softmax_cross_entropy --shift --optimizer adamw --lr 3e-4
      tofu grad bert.onnx --loss softmax_cross_entropy --optimizer adamw --weight-decay 0.01 --group 'bert.*:lr=0.1x'
      tofu grad gradients.onnx --optimizer sgd --gradients pairs.yaml
    """
    from planner import api

    show(lambda line: api.grad(model, progress=line, **given(GradOptions, options)), json_wanted)
    return EXIT_DONE
