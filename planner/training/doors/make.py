"""``tofu grad``: a file of any form becomes a training graph."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from onnx import ModelProto

from planner.errors import ModelError, UnsupportedError, UsageError
from planner.graph.core.model import Graph
from planner.graph.reading.values import values_of
from planner.graph.step.roles import has_own_weights
from planner.options.training import LabelOptions, TrainingOptions
from planner.training.build import build_training_graph, chosen_output, stated_output
from planner.training.doors.gradients import infer_pairs, looks_like_gradients, with_optimizer
from planner.training.doors.needed import LeftOut, one_line, only
from planner.training.doors.pairs import read_pairs
from planner.training.doors.read import Opened, open_training
from planner.training.doors.write_info import training_info_model
from planner.training.parameters.export_warnings import attention_kept, export_warnings
from planner.training.parameters.infer import Parameters, Verdict, outcome
from planner.training.parameters.per_sample import decided
from planner.training.update.label_options import settled
from planner.training.update.losses import LOSSES
from planner.training.update.optimizers import OPTIMIZERS, Hyper, read_group
from planner.training.update.updates import Schedule

_SHOWN: Final = 5
_OWN: Final = "each micro-batch has its own"
_MODELS_OWN: Final = "the model's own"
_WHICH_OPTIMIZER: Final = f"write --optimizer NAME: {', '.join(OPTIMIZERS)}"


@dataclass(frozen=True, slots=True)
class Made:
    """A training graph, and what it was made with."""

    graph: Graph
    loss: str
    optimizer: str
    parameters: Parameters = field(default_factory=lambda: Parameters(()))
    """Of a forward model, what became of its constants."""
    forward: Graph | None = None
    """The forward model in which each parameter stands once; None where a step was read."""
    labels: LabelOptions = field(default_factory=LabelOptions)
    """Settled."""
    left_out: tuple[LeftOut, ...] = ()
    """Outputs of the model that the loss does not need, and that stood in the way."""
    warnings: tuple[str, ...] = ()
    """What the exporter of a forward model did, so that the training is another one."""


def update_of(options: TrainingOptions, stated: Hyper = Hyper()) -> tuple[Hyper, Schedule]:
    """The optimizer's numbers, and when it steps.

    Args:
        options: as asked.
        stated: the numbers where the options give none.

    Raises:
        UsageError: some options exclude each other.
    """
    if options.momentum is not None and options.optimizer not in ("momentum", "nesterov"):
        betas = f"{options.optimizer} takes --betas 0.9 0.999, of which the first is its momentum"
        raise UsageError(
            f"--momentum: of momentum and nesterov, not of {options.optimizer}",
            hint=betas if str(options.optimizer).startswith("adam") else "write --optimizer momentum",
        )
    groups = tuple(read_group(text) for text in options.group)
    decays = [group.decay for group in groups if group.decay is not None]
    if options.weight_decay is None and options.optimizer is not None and decays and not any(decays):
        raise UsageError("--group: decay=0, and nothing is decayed", hint="write --weight-decay 0.01, too")
    # Every number that is not given stays out, so that the optimizer's own default holds.
    values = {name: getattr(options, name) for name in ("decay_factor", "momentum", "epsilon", "weight_decay")}
    numbers = {name: number for name, number in values.items() if number is not None}
    numbers |= dict(zip(("beta1", "beta2"), options.betas or (), strict=False))
    is_dynamic = options.loss_scale == "dynamic"
    scale = None if options.loss_scale is None or options.loss_scale == "dynamic" else float(options.loss_scale)
    if options.weight_decay is None:
        groups = (*stated.groups, *groups)
    return replace(stated, groups=groups, **numbers), Schedule(options.clip_norm, options.accumulate, scale, is_dynamic)


def settings_of(options: TrainingOptions, training: Made) -> tuple[tuple[str, str], ...]:
    """The settings of a training graph as ``tofu grad`` repeats them, by heading."""
    graph = training.graph
    decay = (
        f"weight decay {options.weight_decay:g} (biases and scales: 0)" if options.weight_decay else "no weight decay"
    )
    clipping = "no clipping" if options.clip_norm is None else f"gradients clipped to global norm {options.clip_norm:g}"
    scale = [] if options.loss_scale is None else [f"loss scale {options.loss_scale}"]
    trained = [graph.tensors[name] for name in training.parameters.of(Verdict.TRAINED) if name in graph.tensors]
    weights = ", ".join(sorted({tensor.dtype.value for tensor in trained})) or "float32"
    dropouts = len(graph.ops_of("Dropout"))
    return (
        (
            "optimizer",
            training.optimizer + f", learning rate {options.rate:g}, {decay}" * (training.optimizer != _MODELS_OWN),
        ),
        *((("groups", "; ".join(options.group)),) if options.group else ()),
        ("precision", weights if options.precision == "float32" else f"{options.precision}, {weights} weights"),
        ("micro-batches", ", ".join((str(options.accumulate), clipping, *scale))),
        ("dropout", f"on in {dropouts} ops" if dropouts else "off"),
    )


def make(path: Path, options: TrainingOptions, batch: int | None = None) -> Made:
    """The training graph of a model file or a folder of artifacts.

    Raises:
        TofuError: the file cannot be read, what is asked does not fit it, or it cannot be trained.
    """
    opened = _opened(path, options, batch)
    graph = opened.graph
    if graph.state:
        return _complete(path, opened, options, batch)
    if options.loss is not None and opened.gradients is None and options.gradients is None:
        return _from_forward(path, opened, options, batch)
    return _from_gradients(path, opened, options, batch)


def make_training_info(path: Path, options: TrainingOptions, batch: int | None = None) -> tuple[Made, ModelProto]:
    """The model with its training in ONNX's own format; and the graph that it stands for.

    Raises:
        TofuError: as ``make``; a form that the format does not have.
    """
    if options.loss is None or options.optimizer is None:
        raise UsageError("training information is written for a forward model, a loss and an optimizer")
    hyper, schedule = update_of(options)
    if schedule != Schedule() or options.precision != "float32" or batch is not None or options.dropout:
        raise UnsupportedError(
            "training information is written without clipping, accumulation, loss scaling, other precisions, batches "
            "and modes of dropout"
        )
    training = _from_forward(path, _opened(path, options, batch), options, batch)
    assert training.forward is not None, "it was made of one"
    model = training_info_model(
        training.forward, loss=options.loss, optimizer=options.optimizer, learning_rate=options.rate,
        hyper=hyper, output=options.loss_input, labels=training.labels,
        parameters=training.parameters,
    )  # fmt: skip
    return training, model


def _opened(path: Path, options: TrainingOptions, batch: int | None) -> Opened:
    pairs = None if options.state is None else read_pairs(options.state)
    is_forward = options.loss is not None
    try:
        return open_training(
            path,
            dims=options.dim,
            values=options.values,
            state_pairs=pairs,
            weights=options.params if is_forward else None,
            loss_output=stated_output(options.loss, options.loss_input) if options.loss is not None else None,
        )
    except ModelError as error:
        if batch is None or "--dim" not in error.hint:
            raise
        hint = f"--batch changes a batch that has a size; {error.hint}"
        raise type(error)(error.what, facts=error.facts, hint=hint) from error


def _from_forward(path: Path, opened: Opened, options: TrainingOptions, batch: int | None) -> Made:
    if options.optimizer is None:
        raise UsageError("with which optimizer?", hint=_WHICH_OPTIMIZER)
    loss, optimizer, graph = options.loss, options.optimizer, opened.graph
    assert loss is not None, "the caller looked"
    target = chosen_output(graph, loss, options.loss_input)
    command = f"tofu grad {shlex.quote(str(path))} --optimizer {optimizer}"
    options = settled(graph, target, loss, options, command=command)
    left_out = opened.left_out
    try:
        step, graph, parameters = _built(opened, graph, target, options, batch)
    except UnsupportedError as error:
        if len(graph.outputs) == 1:
            raise
        # What only other outputs need is no reason to refuse; what the loss needs is said again, alone.
        step, graph, parameters = _built(opened, only(graph, target), target, options, batch)
        side_outputs = [name for name in opened.graph.outputs if name != target]
        left_out = (*left_out, *(LeftOut(name, one_line(error)) for name in side_outputs))
    left_out += tuple(LeftOut(name, _OWN) for name in graph.outputs if name not in step.outputs)
    parameters = outcome(parameters, step)
    warnings = (*_fixed_data(opened), *export_warnings(graph, parameters, opened.exporter))
    if options.dropout is None:
        warnings += tuple(attention_kept(graph))
    return Made(step, loss, optimizer, parameters, graph, options, left_out, warnings)


def _built(
    opened: Opened, forward: Graph, target: str, options: TrainingOptions, batch: int | None
) -> tuple[Graph, Graph, Parameters]:
    """The step of a forward model, the model in which each parameter stands once, and what is trained of it."""
    assert options.loss is not None, "the caller looked"
    assert options.optimizer is not None, "the caller looked"
    graph, parameters = decided(forward, target, train=options.train, freeze=options.freeze, exporter=opened.exporter)
    parameters = parameters.with_evidence(frozenset(opened.held), "an input of the file, held as a constant", "input")
    hyper, schedule = update_of(options)
    step = build_training_graph(
        graph, loss=options.loss, optimizer=options.optimizer, learning_rate=options.rate,
        hyper=hyper, schedule=schedule, labels=options,
        batchnorm=options.batchnorm, dropout=options.dropout, batch=batch, output=options.loss_input,
        precision=options.precision, switched=True, parameters=parameters,
    )  # fmt: skip
    return step, graph, parameters


def _fixed_data(opened: Opened) -> Iterator[str]:
    """A warning for each input that looks like data, and has one value for ever."""
    stated = dict(values_of(opened.graph.notes))
    for name, form in opened.fixed_floats:
        yield (
            f"input {name}, {form}, is {stated[name]} in every step (--value): where it is data, leave that out, and "
            "give it with tofu run --inputs"
        )


def _from_gradients(path: Path, opened: Opened, options: TrainingOptions, batch: int | None) -> Made:
    if options.train or options.freeze or options.params:
        option = "--train" if options.train else "--freeze" if options.freeze else "--params"
        raise UsageError(f"{path}: says itself what is trained: {option} is for forward models and a loss")
    if options.loss is not None or options.loss_input is not None:
        raise UsageError(f"{path}: has its loss already, so that --loss cannot be given")
    if batch is not None or options.precision != "float32" or options.dropout is not None:
        raise UsageError(f"{path}: has its gradients already: batch, precision and dropout cannot be changed")
    pairs = opened.gradients if options.gradients is None else read_pairs(options.gradients)
    if pairs is None:
        try:
            pairs = infer_pairs(opened.graph)
        except UsageError as error:
            if not looks_like_gradients(opened.graph):
                raise _no_loss(path, opened.graph) from error
            raise UsageError(f"{path}: {error.what}", facts=error.facts, hint=error.hint) from error
        # An output of the sizes of the data (an autoencoder's) is no gradient of these.
        if has_own_weights(opened.graph) and all(parameter in opened.graph.inputs for parameter, _ in pairs):
            raise _no_loss(path, opened.graph)
    optimizer, (hyper, schedule) = options.optimizer, update_of(options)
    if opened.optimizer is not None and optimizer is None:
        optimizer, (hyper, schedule) = opened.optimizer.name, update_of(options, opened.optimizer.hyper)
        schedule = opened.optimizer.schedule if schedule == Schedule() else schedule
    if optimizer is None:
        raise UsageError("with which optimizer?", hint=_WHICH_OPTIMIZER)
    step = with_optimizer(
        opened.graph, pairs, optimizer=optimizer, learning_rate=options.rate, hyper=hyper, schedule=schedule,
        running=opened.running,
    )  # fmt: skip
    return Made(step, _MODELS_OWN, optimizer)


def _no_loss(path: Path, graph: Graph) -> UsageError:
    """The error for a forward model without a loss."""
    return UsageError(
        f"{path}: which loss is lowered? it has no gradients of weights, so it is a forward model",
        facts=tuple(f"{name!r}: {list(graph.tensors[name].shape)}" for name in graph.outputs[:_SHOWN]),
        hint=f"write --loss NAME: {', '.join(LOSSES)}, or output:NAME for an output that is a loss itself; "
        "of a graph of gradients, --gradients pairs.yaml says which is whose",
    )


def _complete(path: Path, opened: Opened, options: TrainingOptions, batch: int | None) -> Made:
    """A model that holds a whole step, which is written in standard operators as it is."""
    if surplus := (*options.named(TrainingOptions), *(["--batch"] if batch is not None else [])):
        raise UnsupportedError(
            f"{path}: the model has state, so it is a training step already",
            facts=tuple(f"{pair.current!r} becomes {pair.following!r}" for pair in opened.graph.state[:5]),
            hint=f"plan it as it is, or leave {', '.join(surplus)} out to write it in standard operators; "
            "if these are no states, write --state with a file that holds {}",
        )
    return Made(opened.graph, _MODELS_OWN, _MODELS_OWN)
