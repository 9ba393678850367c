"""What is asked of a training graph, from the options by which it is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from planner.api.arguments import AnyPath, path_of, texts_of
from planner.errors import UsageError
from planner.training.doors.make import Wishes
from planner.training.gradients.dropout import DropoutMode
from planner.training.update.losses import LossOptions
from planner.training.update.optimizers import Hyper
from planner.training.update.precision import Precision
from planner.training.update.updates import Schedule


def wishes_of(
    *,
    loss: str | None,
    optimizer: str | None,
    lr: float,
    momentum: float | None,
    betas: tuple[float, float] | None,
    epsilon: float | None,
    decay_factor: float,
    weight_decay: float | None,
    no_decay: Sequence[str],
    no_decay_vectors: bool,
    train: Sequence[str],
    freeze: Sequence[str],
    params: Sequence[str],
    clip_norm: float | None,
    accumulate: int,
    loss_scale: float | Literal["dynamic"] | None,
    class_weights: Sequence[float] | None,
    ignore_index: int | None,
    class_axis: int | None,
    shift: bool,
    tokens: str | None,
    loss_input: str | None,
    precision: Precision,
    gradients: AnyPath | None,
    state: AnyPath | None,
    batchnorm: Literal["train", "frozen"],
    dropout: DropoutMode | None,
    batch: int | None,
    dim: Mapping[str, int] | None,
    value: Mapping[str, str | float] | None,
) -> Wishes:
    """The options of ``planner.api.grad``, which says what each means.

    Raises:
        UsageError: some exclude each other.
    """
    if momentum is not None and optimizer not in ("momentum", "nesterov"):
        raise UsageError(f"--momentum: the optimizer {optimizer!r} has none", hint="write --optimizer momentum")
    numbers: dict[str, float] = {"decay_factor": decay_factor} if decay_factor else {}
    numbers |= {} if momentum is None else {"momentum": momentum}
    numbers |= {} if betas is None else {"beta1": betas[0], "beta2": betas[1]}
    numbers |= {} if epsilon is None else {"epsilon": epsilon}
    numbers |= {} if weight_decay is None else {"weight_decay": weight_decay}
    hyper = Hyper(exempt=tuple(no_decay), exempt_vectors=no_decay_vectors, **numbers) if numbers else None
    is_dynamic = loss_scale == "dynamic"
    scale = None if loss_scale is None or loss_scale == "dynamic" else float(loss_scale)
    return Wishes(
        loss=loss,
        optimizer=optimizer,
        learning_rate=lr,
        output=loss_input,
        batchnorm=batchnorm,
        dropout=dropout,
        batch=batch,
        dims=dim or {},
        values=texts_of(value) or {},
        hyper=hyper,
        schedule=Schedule(clip_norm, accumulate, scale, is_dynamic),
        loss_options=LossOptions(
            None if class_weights is None else tuple(class_weights), ignore_index, class_axis, shift, tokens
        ),
        precision=precision,
        train=tuple(train),
        freeze=tuple(freeze),
        weights=tuple(params),
        gradients=path_of(gradients),
        state=path_of(state),
    )
