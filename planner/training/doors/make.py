"""``tofu grad``: a file of any form becomes a training graph."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from onnx import ModelProto

from planner.errors import ModelError, UnsupportedError, UsageError
from planner.graph.model import Graph
from planner.graph.reading.values import values_of
from planner.graph.roles import has_own_weights
from planner.training.build import build_training_graph, chosen_output, stated_output
from planner.training.doors.gradients import infer_pairs, looks_like_gradients, with_optimizer
from planner.training.doors.needed import LeftOut, one_line, only
from planner.training.doors.pairs import read_pairs
from planner.training.doors.read import Opened, open_training
from planner.training.doors.write_info import training_info_model
from planner.training.gradients.dropout import DropoutMode
from planner.training.parameters.export_warnings import attention_kept, export_warnings
from planner.training.parameters.infer import Parameters, outcome
from planner.training.parameters.per_sample import decided
from planner.training.update.label_options import settled
from planner.training.update.losses import LOSSES, LossOptions
from planner.training.update.optimizers import OPTIMIZERS, Hyper
from planner.training.update.precision import Precision
from planner.training.update.updates import Schedule

_SHOWN: Final = 5
_OWN: Final = "each micro-batch has its own"
_WHICH_OPTIMIZER: Final = f"write --optimizer NAME: {', '.join(OPTIMIZERS)}"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is asked of a training graph."""

    loss: str | None = None
    """Name of the loss, or ``output:NAME``; None for a model that has its gradients already."""
    optimizer: str | None = None
    """Name of the optimizer; None where the file says it."""
    learning_rate: float = 0.01
    output: str | None = None
    """What the loss looks at; None: the only output."""
    batchnorm: Literal["train", "frozen"] = "train"
    dropout: DropoutMode | None = None
    """None: as the model has it."""
    batch: int | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    """By input, what it becomes a constant of."""
    hyper: Hyper | None = None
    """None: the optimizer's defaults, or what the file says."""
    schedule: Schedule = field(default_factory=Schedule)
    loss_options: LossOptions = field(default_factory=LossOptions)
    precision: Precision = "float32"
    train: tuple[str, ...] = ()
    """Patterns of constants of a forward model that are trained, whatever is inferred."""
    freeze: tuple[str, ...] = ()
    """Patterns of those that are not."""
    weights: tuple[str, ...] = ()
    """Patterns of inputs of a forward model that are weights."""
    gradients: Path | None = None
    """Pairs of parameter and gradient, for a graph of gradients."""
    state: Path | None = None
    """Pairs of state and next state, for a flat step; None: as the model says, or inferred."""


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
    loss_options: LossOptions = field(default_factory=LossOptions)
    """Settled."""
    left_out: tuple[LeftOut, ...] = ()
    """Outputs of the model that the loss does not need, and that stood in the way."""
    warnings: tuple[str, ...] = ()
    """What the exporter of a forward model did, so that the training is another one."""


def make(path: Path, wishes: Wishes) -> Made:
    """The training graph of a model file or a folder of artifacts.

    Raises:
        TofuError: the file cannot be read, what is asked does not fit it, or it cannot be trained.
    """
    opened = _opened(path, wishes)
    graph = opened.graph
    if graph.state:
        return _complete(path, opened, wishes)
    if wishes.loss is not None and opened.gradients is None and wishes.gradients is None:
        return _from_forward(path, opened, wishes)
    return _from_gradients(path, opened, wishes)


def make_training_info(path: Path, wishes: Wishes) -> tuple[Made, ModelProto]:
    """The model with its training in ONNX's own format; and the graph that it stands for.

    Raises:
        TofuError: as ``make``; a form that the format does not have.
    """
    if wishes.loss is None or wishes.optimizer is None:
        raise UsageError("training information is written for a forward model, a loss and an optimizer")
    if wishes.schedule != Schedule() or wishes.precision != "float32" or wishes.batch is not None or wishes.dropout:
        raise UnsupportedError(
            "training information is written without clipping, accumulation, loss scaling, other precisions, batches "
            "and modes of dropout"
        )
    training = _from_forward(path, _opened(path, wishes), wishes)
    assert training.forward is not None, "it was made of one"
    model = training_info_model(
        training.forward, loss=wishes.loss, optimizer=wishes.optimizer, learning_rate=wishes.learning_rate,
        hyper=wishes.hyper or Hyper(), output=wishes.output, loss_options=training.loss_options,
        parameters=training.parameters,
    )  # fmt: skip
    return training, model


def _opened(path: Path, wishes: Wishes) -> Opened:
    pairs = None if wishes.state is None else read_pairs(wishes.state)
    is_forward = wishes.loss is not None
    try:
        return open_training(
            path,
            dims=wishes.dims or None,
            values=wishes.values,
            state_pairs=pairs,
            weights=wishes.weights if is_forward else None,
            loss_output=stated_output(wishes.loss, wishes.output) if wishes.loss is not None else None,
        )
    except ModelError as error:
        if wishes.batch is None or "--dim" not in error.hint:
            raise
        hint = f"--batch changes a batch that has a size; {error.hint}"
        raise type(error)(error.what, facts=error.facts, hint=hint) from error


def _from_forward(path: Path, opened: Opened, wishes: Wishes) -> Made:
    if wishes.optimizer is None:
        raise UsageError("with which optimizer?", hint=_WHICH_OPTIMIZER)
    assert wishes.loss is not None, "the caller looked"
    graph = opened.graph
    target = chosen_output(graph, wishes.loss, wishes.output)
    command = f"tofu grad {shlex.quote(str(path))} --optimizer {wishes.optimizer}"
    options = settled(graph, target, wishes.loss, wishes.loss_options, command=command)
    left_out = opened.left_out
    try:
        step, graph, parameters = _built(opened, graph, target, wishes, options)
    except UnsupportedError as error:
        if len(graph.outputs) == 1:
            raise
        # What only other outputs need is no reason to refuse; what the loss needs is said again, alone.
        step, graph, parameters = _built(opened, only(graph, target), target, wishes, options)
        side_outputs = [name for name in opened.graph.outputs if name != target]
        left_out = (*left_out, *(LeftOut(name, one_line(error)) for name in side_outputs))
    left_out += tuple(LeftOut(name, _OWN) for name in graph.outputs if name not in step.outputs)
    parameters = outcome(parameters, step)
    warnings = (*_fixed_data(opened), *export_warnings(graph, parameters, opened.exporter))
    if wishes.dropout is None:
        warnings += tuple(attention_kept(graph))
    return Made(step, wishes.loss, wishes.optimizer, parameters, graph, options, left_out, warnings)


def _built(
    opened: Opened, forward: Graph, target: str, wishes: Wishes, options: LossOptions
) -> tuple[Graph, Graph, Parameters]:
    """The step of a forward model, the model in which each parameter stands once, and what is trained of it."""
    assert wishes.loss is not None, "the caller looked"
    assert wishes.optimizer is not None, "the caller looked"
    graph, parameters = decided(forward, target, train=wishes.train, freeze=wishes.freeze, exporter=opened.exporter)
    parameters = parameters.with_evidence(frozenset(opened.held), "an input of the file, held as a constant", "input")
    step = build_training_graph(
        graph, loss=wishes.loss, optimizer=wishes.optimizer, learning_rate=wishes.learning_rate,
        hyper=wishes.hyper or Hyper(), schedule=wishes.schedule, loss_options=options,
        batchnorm=wishes.batchnorm, dropout=wishes.dropout, batch=wishes.batch, output=wishes.output,
        precision=wishes.precision, switched=True, parameters=parameters,
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


def _no_patterns(path: Path, wishes: Wishes) -> None:
    if wishes.train or wishes.freeze or wishes.weights:
        option = "--train" if wishes.train else "--freeze" if wishes.freeze else "--params"
        raise UsageError(f"{path}: says itself what is trained: {option} is for forward models and a loss")


def _from_gradients(path: Path, opened: Opened, wishes: Wishes) -> Made:
    _no_patterns(path, wishes)
    if wishes.loss is not None or wishes.output is not None:
        raise UsageError(f"{path}: has its loss already, so that --loss cannot be given")
    if wishes.batch is not None or wishes.precision != "float32" or wishes.dropout is not None:
        raise UsageError(f"{path}: has its gradients already: batch, precision and dropout cannot be changed")
    pairs = opened.gradients if wishes.gradients is None else read_pairs(wishes.gradients)
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
    optimizer, hyper, schedule = wishes.optimizer, wishes.hyper, wishes.schedule
    if opened.optimizer is not None and optimizer is None:
        optimizer, hyper = opened.optimizer.name, hyper or opened.optimizer.hyper
        schedule = opened.optimizer.schedule if schedule == Schedule() else schedule
    if optimizer is None:
        raise UsageError("with which optimizer?", hint=_WHICH_OPTIMIZER)
    step = with_optimizer(
        opened.graph, pairs, optimizer=optimizer, learning_rate=wishes.learning_rate, hyper=hyper, schedule=schedule,
        running=opened.running,
    )  # fmt: skip
    return Made(step, "the model's own", optimizer)


def _no_loss(path: Path, graph: Graph) -> UsageError:
    """The error for a forward model without a loss."""
    return UsageError(
        f"{path}: which loss is lowered? it has no gradients of weights, so it is a forward model",
        facts=tuple(f"{name!r}: {list(graph.tensors[name].shape)}" for name in graph.outputs[:_SHOWN]),
        hint=f"write --loss NAME: {', '.join(LOSSES)}, or output:NAME for an output that is a loss itself; "
        "of a graph of gradients, --gradients pairs.yaml says which is whose",
    )


def _complete(path: Path, opened: Opened, wishes: Wishes) -> Made:
    """A model that holds a whole step, which is written in standard operators as it is."""
    _no_patterns(path, wishes)
    if wishes.loss is not None or wishes.optimizer is not None:
        raise UnsupportedError(
            f"{path}: the model has state, so it is a training step already",
            facts=tuple(f"{pair.current!r} becomes {pair.following!r}" for pair in opened.graph.state[:5]),
            hint="plan it as it is, or leave --loss and --optimizer out to write it in standard operators; "
            "if these are no states, write --state with a file that holds {}",
        )
    return Made(opened.graph, "the model's own", "the model's own")
