"""The request for a training graph, from its options."""

from __future__ import annotations

from planner.errors import UsageError
from planner.options.training import TrainingOptions
from planner.training.doors.make import Wishes
from planner.training.update.losses import LossOptions
from planner.training.update.optimizers import Hyper
from planner.training.update.updates import Schedule


def wishes_of(options: TrainingOptions, batch: int | None) -> Wishes:
    """The options of ``planner.api.grad``, which says what each means.

    Args:
        options: of ``grad``, or of ``fit``.
        batch: another batch size than the file's.

    Raises:
        UsageError: some exclude each other.
    """
    if options.momentum is not None and options.optimizer not in ("momentum", "nesterov"):
        raise UsageError(f"--momentum: the optimizer {options.optimizer!r} has none", hint="write --optimizer momentum")
    if options.weight_decay is None and (options.no_decay or options.no_decay_vectors):
        raise UsageError("--no-decay: nothing is decayed", hint="write --weight-decay, too")
    beta1, beta2 = options.betas or (None, None)
    hyperparameters = {
        "decay_factor": options.decay_factor or None,
        "momentum": options.momentum,
        "beta1": beta1,
        "beta2": beta2,
        "epsilon": options.epsilon,
        "weight_decay": options.weight_decay,
    }
    # Every number that is not given stays out, so that the optimizer's own default holds.
    numbers = {name: number for name, number in hyperparameters.items() if number is not None}
    exempt = tuple(options.no_decay)
    is_dynamic = options.loss_scale == "dynamic"
    scale = None if options.loss_scale is None or options.loss_scale == "dynamic" else float(options.loss_scale)
    weights = None if options.class_weights is None else tuple(options.class_weights)
    return Wishes(
        loss=options.loss,
        optimizer=options.optimizer,
        learning_rate=options.lr,
        output=options.loss_input,
        batchnorm=options.batchnorm,
        dropout=options.dropout,
        batch=batch,
        dims=options.dim or {},
        values=options.values or {},
        hyper=Hyper(exempt=exempt, exempt_vectors=options.no_decay_vectors, **numbers) if numbers else None,
        schedule=Schedule(options.clip_norm, options.accumulate, scale, is_dynamic),
        loss_options=LossOptions(weights, options.ignore_index, options.class_axis, options.shift, options.tokens),
        precision=options.precision,
        train=tuple(options.train),
        freeze=tuple(options.freeze),
        weights=tuple(options.params),
        gradients=options.gradients,
        state=options.state,
    )
