"""Options of training: of ``grad``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Literal

from planner.options import Fraction0, Model, ReadOptions, argument, option, options
from planner.progress import Progress, silent
from planner.records import Above0, Positive, Signed

OPTIMIZERS = ("sgd", "momentum", "nesterov", "adagrad", "adam", "adamw", "adamw_after")
"""Those of planner.training.update.optimizers, which is not imported for its names alone."""


@options
class LabelOptions:
    """How a loss reads labels."""

    class_weights: Sequence[float] | None = option(
        "One for each class, of losses by labels.", default=None, metavar="W,W,..."
    )
    ignore_index: Signed | None = option("The label that counts for nothing.", default=None, metavar="LABEL")
    class_axis: Signed | None = option(
        "The dim that holds the classes, where the ops do not tell.", default=None, metavar="N"
    )
    shift: bool = option("Train the next token: the labels are the tokens, one position on.", default=False)
    tokens: str | None = option(
        "The input of tokens, for --shift, where there are several.", default=None, metavar="NAME"
    )

    def named(self, kind: type[LabelOptions] | None = None) -> tuple[str, ...]:
        """What is given of these, or of a kind's but for how a model is read, as options of the command line."""
        wanted = (field for field in fields(kind or LabelOptions) if field not in fields(ReadOptions))
        stated = (field.name for field in wanted if getattr(self, field.name) not in (field.default, []))
        return tuple(f"--{name.replace('_', '-')}" for name in stated)


@options
class TrainingOptions(LabelOptions, ReadOptions):
    """How a forward model becomes a step of training."""

    loss: str | None = option(
        "What the training lowers: softmax_cross_entropy, nll, mse, l1, "
        "bce_with_logits, or output:NAME for an output that is one; none for a model of gradients.",
        default=None,
        metavar="NAME",
    )
    loss_input: str | None = option(
        "The output, or an inner tensor, that the loss looks at.", default=None, metavar="NAME"
    )
    optimizer: str | None = option("How the weights follow.", default=None, choices=OPTIMIZERS)
    lr: Above0 | None = option("Learning rate.  [default: 0.01]", default=None)
    momentum: Fraction0 | None = option("Of momentum and nesterov.  [default: 0.9]", default=None)
    betas: tuple[Fraction0, Fraction0] | None = option(
        "Of adam and adamw.  [default: 0.9 0.999]", default=None, metavar="A B"
    )
    epsilon: Above0 | None = option("Of adagrad, adam and adamw.  [default: 1e-10, 1e-8, 1e-8]", default=None)
    decay_factor: Above0 = 0.0
    weight_decay: Above0 | None = option(
        "Decay of weights; in adamw beside the gradient. Biases and scales only by --group.",
        default=None,
        metavar="X",
    )
    group: Sequence[str] = option(
        "Rate and decay of some parameters (*, ?), as 'head.*:lr=0.1x,decay=0'; repeatable. If two "
        "match, the longer wins.",
        default=(),
        metavar="PATTERN:NUMBERS",
    )
    train: Sequence[str] = option(
        "Constants that are trained, whatever is inferred (*, ?); repeatable.", default=(), metavar="PATTERN"
    )
    freeze: Sequence[str] = option(
        "Constants that stay as they are (*, ?); repeatable. Of two, the longer counts.", default=(), metavar="PATTERN"
    )
    params: Sequence[str] = option(
        "Inputs that are weights, where names and defaults do not say so (*, ?); repeatable.",
        default=(),
        metavar="PATTERN",
    )
    clip_norm: Above0 | None = option("Clip gradients to this norm, taken over all of them.", default=None, metavar="X")
    accumulate: Positive = option("Micro-batches to a step.  [default: 1]", default=1, metavar="N")
    precision: Literal["float32", "float16", "bfloat16"] = option(
        "What the model computes in; parameters stay float32.  [default: float32]", default="float32"
    )
    loss_scale: Above0 | Literal["dynamic"] | None = option(
        "For gradients too small for float16.", default=None, metavar="X|dynamic"
    )
    gradients: Path | None = option(
        "Of a model of gradients: which is whose, if names, shapes and order do not tell.",
        default=None,
        metavar="PAIRS.yaml",
    )
    batchnorm: Literal["train", "frozen"] = option(
        "BatchNormalization by the statistics of the batch, or by those that the model holds.",
        default="train",
        shows_default=True,
    )
    dropout: Literal["train", "off"] | None = option(
        "Whether Dropout drops.  [default: as the model has it]", default=None
    )

    @property
    def rate(self) -> float:
        """The learning rate that the training graph begins with."""
        return 0.01 if self.lr is None else self.lr


@options
class GradOptions(TrainingOptions):
    """What ``tofu grad`` and ``planner.grad`` are asked for."""

    model: Model = argument(kw_only=False)
    form: Literal["onnx", "training-info"] = "onnx"
    batch: Positive | None = option(
        "Batch size, where it is to be another; of a symbolic dim --dim says the size.", default=None, metavar="N"
    )
    output: Path | None = option(
        "Where to write the training graph.  [default: MODEL.train.onnx in the working directory]",
        default=None,
        metavar="FILE",
        flags=("-o", "--output"),
    )
    verify: bool = option("Hold MODEL as it is read against what the stock runtime makes of the file.", default=False)
    progress: Progress = silent
