"""The training step of a forward model."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, Literal

import numpy as np

from planner.errors import UnsupportedError, UsageError, did_you_mean
from planner.graph.core.builder import Builder
from planner.graph.core.check import check_graph
from planner.graph.core.indexed import lookup_of
from planner.graph.core.model import DType, Graph, StatePair
from planner.graph.core.notes import TRAINING
from planner.graph.core.traits import COPYING, RESHAPES
from planner.options.training import LabelOptions
from planner.printable import some
from planner.training import rules
from planner.training.batch.change import samples_of_inputs, with_batch
from planner.training.gradients.autodiff import backward
from planner.training.gradients.composed import composed
from planner.training.gradients.dropout import DropoutMode, with_dropout
from planner.training.gradients.expand import expanded
from planner.training.gradients.lowering import lower
from planner.training.gradients.older_opsets import OLDEST_OPSET, OPSET, brought_up
from planner.training.parameters.infer import Parameters, Verdict
from planner.training.parameters.per_sample import decided
from planner.training.update.label_options import settled
from planner.training.update.losses import LOSSES, OUTPUT_PREFIX, loss_function
from planner.training.update.micro_batches import samples_dims, unchanged
from planner.training.update.optimizers import Hyper, optimizer_function
from planner.training.update.precision import Precision, opset_of, with_precision
from planner.training.update.updates import Schedule, Updates

INPUTS: Final = "tofu.inputs"
"""Note that tells how sample data for each input is drawn, as JSON: ``{"labels": {"integers_below": 10}, "x":
{"normal": true}, "mask": {"booleans": true}, "learning_rate": {"value": 0.05}}``.

Beside ``integers_below``: ``labels`` says that other values are mistakes, but for the one that ``ignored`` names; and
``next`` that each position's label is the next one; ``assumed`` that nothing tells the bound; ``target`` says in words
what the loss compares with."""
_SHOWN: Final = 20


def build_training_graph(
    forward: Graph,
    *,
    loss: str,
    optimizer: str,
    learning_rate: float,
    batchnorm: Literal["train", "frozen"] = "train",
    dropout: DropoutMode | None = None,
    batch: int | None = None,
    output: str | None = None,
    hyper: Hyper = Hyper(),
    schedule: Schedule = Schedule(),
    labels: LabelOptions = LabelOptions(),
    precision: Precision = "float32",
    switched: bool = False,
    parameters: Parameters | None = None,
) -> Graph:
    """The graph of one training step, in standard operators.

    Trained is what ``parameters`` says, as far as the loss depends on it differentiably.

    Args:
        forward: a model without state.
        loss: its name, see ``losses.LOSSES``; or ``output:NAME``.
        optimizer: its name, see ``optimizers.OPTIMIZERS``.
        learning_rate: default value of the data input ``learning_rate``.
        batchnorm: "train": batch normalization takes the batch's statistics, and its running ones are state (see
            ``lowering``); "frozen": its running statistics, which stay as they are.
        dropout: "train" or "off", whatever the model's Dropouts say; None: as they say, see ``dropout.with_dropout``.
        batch: new number of samples, see ``batch.with_batch``; None: that of the model.
        output: what the loss looks at; None: the model's only output.
        hyper: the optimizer's numbers.
        schedule: clipping, accumulation, loss scaling.
        labels: class weights and the like; of logits of rank 3 or more also in which dim the classes lie, where
            the ops that make them do not tell (see ``class_axis``).
        precision: "float16" or "bfloat16": the model computes in that, from float32 parameters (see ``precision``).
        switched: whether a data input ``notes.TRAINING`` says that the step trains, where that makes a difference: if
            it is false, the model infers, so that its loss is that of held-out data; the next state is of no use then.
        parameters: what is trained; None: as ``per_sample.decided`` finds.

    Returns:
        Inputs: the model's, the loss's target, ``learning_rate``, and state: parameters, what the optimizer remembers
        of them, running statistics. Outputs: ``loss``, the model's outputs, and ``NAME.next`` for each state.
        ``Graph.initial`` holds the state before the first step.

    Raises:
        UsageError: an unknown name, or a number that cannot be used; what is trained cannot be told.
        UnsupportedError: the batch cannot be changed; ops that have no gradient: all of them; nothing to train.
    """
    make_loss, step = loss_function(loss), optimizer_function(optimizer)
    _check_rate(learning_rate)
    hyper.check()
    schedule.check()
    if batchnorm not in ("train", "frozen"):
        raise UsageError(f"batchnorm is {batchnorm!r}", facts=("known: frozen, train",))
    if forward.state:
        raise UnsupportedError(
            "the model has state, so it is a training step already",
            facts=tuple(f"{pair.current!r} becomes {pair.following!r}" for pair in forward.state[:5]),
            hint="plan it as it is",
        )
    if forward.opset < OLDEST_OPSET:
        raise UnsupportedError(f"the model is of opset {forward.opset}; the oldest that is taken is {OLDEST_OPSET}")
    target = chosen_output(forward, loss, output)
    labels = settled(forward, target, loss, labels)
    if parameters is None:
        forward, parameters = decided(forward, target)
    candidates = parameters.of(Verdict.TRAINED)
    forward = replace(forward, folded=(forward.folded | parameters.inferred_frozen()) - set(candidates))
    if batch is not None:
        forward = with_batch(forward, batch, frozenset(candidates))
    placed = samples_of_inputs(forward)
    forward = with_dropout(forward, dropout)
    forward = with_precision(composed(brought_up(forward), candidates), precision, candidates)
    of_inputs = {name: sample_of(forward, name) for name in forward.inputs}
    rule_table = rules.standard()
    forward = expanded(forward, candidates, rule_table)
    candidates = tuple(name for name in candidates if name in forward.constants)

    builder = Builder(forward)
    training = builder.declare(TRAINING, (), DType.BOOL) if switched else None
    lowered = lower(builder, forward.ops, batch_statistics=batchnorm == "train", training=training)
    switches = [training] if training and any(training in op.inputs for op in builder.ops) else []
    scalar_loss = make_loss(builder, target, labels, schedule.accumulate > 1)
    rate = builder.declare("learning_rate", (), DType.FLOAT32)
    updates = Updates(builder, forward, step, hyper, schedule, rate, scalar_loss.weight)
    backward(
        builder,
        forward.ops,
        {target: updates.scaled(scalar_loss.gradient)},
        candidates,
        rules=rule_table,
        saved=lowered.saved,
        ready=updates.ready,
    )
    dims = samples_dims(placed, {name: builder.shape(name) for name in scalar_loss.targets})
    builder, tensor_of = updates.in_micro_batches(dims, forward.outputs, lowered.updates, scalar_loss.value)
    following = {name: tensor_of[after] for name, after in lowered.updates.items()}
    results = [name for name in forward.outputs if name in tensor_of]
    updates.finish()
    states = updates.parameters
    if not states:
        raise UnsupportedError(
            f"output {target!r} depends on no parameter, so there is nothing to train",
            facts=tuple(
                f"{decision.name!r} {list(decision.shape)}: {decision.why}"
                for decision in parameters.decisions[:_SHOWN]
            ),
            hint="--train PATTERN says what is a parameter"
            if parameters.decisions
            else "parameters are constants of the file: if its weights are inputs, --params PATTERN says which",
        )
    order = {name: index for index, name in enumerate(forward.constants)}
    states.sort(key=lambda pair: order[pair[0]])
    state_constants = [*states, *following.items()]
    samples: dict[str, Mapping[str, object]] = {
        **of_inputs,
        **scalar_loss.targets,
        **scalar_loss.own_targets,
        rate: {"value": learning_rate},
        **{name: {"value": 1} for name in switches},
        **updates.samples,
    }
    initial: dict[str, np.ndarray | None] = {rate: np.array(learning_rate, np.float32), **updates.initial}
    initial.update((name, np.array(True)) for name in switches)
    initial.update((name, forward.constants[name]) for name, _ in state_constants)
    for name, _ in state_constants:
        builder.take(name)
    pairs = [*states, *updates.memories, *following.items()]
    state = tuple(StatePair(current, builder.output(after, f"{current}.next")) for current, after in pairs)
    # The model's own loss may have the name already.
    loss_tensor = tensor_of[scalar_loss.value]
    shown = "loss" if scalar_loss.value == "loss" and "loss" in results else builder.output(loss_tensor, "loss")
    result = builder.finish(
        inputs=(*forward.inputs, *scalar_loss.targets, rate, *switches, *(pair.current for pair in state)),
        outputs=tuple(dict.fromkeys((shown, *results, *(pair.following for pair in state)))),
        state=state,
        initial={**unchanged(forward, builder), **initial},
        opset=max(OPSET, forward.opset, opset_of(precision)),
        notes={**forward.notes, **schedule.notes, INPUTS: json.dumps(samples)},
    )
    check_graph(result)
    return result


def _check_rate(learning_rate: float) -> None:
    if not (math.isfinite(learning_rate) and learning_rate > 0):
        raise UsageError(f"the learning rate is {learning_rate}; it must be a positive number")


def stated_output(loss: str, output: str | None) -> str | None:
    """What the loss looks at: ``output:NAME`` says it itself."""
    if not loss.startswith(OUTPUT_PREFIX):
        return output
    name = loss.removeprefix(OUTPUT_PREFIX)
    if output not in (None, name):
        raise UsageError(f"the loss is {loss!r}, and it is to look at {output!r}")
    return name


def chosen_output(forward: Graph, loss: str, output: str | None) -> str:
    """The output that the loss looks at.

    Raises:
        UsageError: there is none of that name, or several and none is named; or it is to be the loss, and another one
            is the model's only scalar.
    """
    if loss in forward.outputs and loss not in LOSSES:
        scalar = forward.tensors[loss].elements == 1
        names = f"write --loss NAME --loss-input {loss}, of these: {', '.join(sorted(LOSSES))}"
        hint = f"write --loss {OUTPUT_PREFIX}{loss}" if scalar else names
        raise UsageError(f"unknown loss {loss!r}, which is an output of the model", hint=hint)
    output = stated_output(loss, output)
    if output is None and len(forward.outputs) == 1:
        return forward.outputs[0]
    facts = tuple(
        f"{name!r}: {list(forward.tensors[name].shape)} of {forward.tensors[name].dtype.value}"
        for name in forward.outputs
    )
    if output is None:
        raise UsageError(
            f"the model has {len(facts)} outputs",
            facts=facts,
            hint="say which one the loss looks at: --loss-input NAME",
        )
    tensors = [forward.tensors[name] for name in forward.outputs if loss.startswith(OUTPUT_PREFIX)]
    scalars = [tensor.name for tensor in tensors if tensor.elements == 1 and tensor.dtype.is_float]
    offer = f"its one scalar output: --loss {OUTPUT_PREFIX}{scalars[0]}" if len(scalars) == 1 else ""
    if output not in forward.outputs:
        raise UsageError(
            f"the model has no output {output!r}",
            facts=facts,
            hint=offer or did_you_mean(output, forward.producer) or f"write one of these: {some(forward.outputs)}",
        )
    if offer and output not in scalars:
        raise UsageError(f"output {output!r} is no scalar, so it is no loss", facts=facts, hint=offer)
    return output


def sample_of(forward: Graph, name: str) -> Mapping[str, object]:
    """How sample data of an input is drawn: indices within the tables that they are looked up in, labels of a loss of
    the model's own, or of a one-hot form, within its classes.
    """
    dtype = forward.tensors[name].dtype
    if dtype.is_float:
        return {"normal": True}
    if dtype is DType.BOOL:
        return {"booleans": True}
    bounds = [*_bounds(forward, name)]
    if not bounds:
        return {"integers_below": 2, "assumed": True}
    rule: dict[str, object] = {"integers_below": min(below for below, *_ in bounds)}
    labels = {ignored for _, is_label, ignored in bounds if is_label}
    if len(labels) == 1:
        (ignored,) = labels
        rule |= {"labels": True} if ignored is None else {"labels": True, "ignored": ignored}
    return rule


def _bounds(forward: Graph, name: str) -> Iterator[tuple[int, bool, object]]:
    """By op that looks up by a tensor, or compares it with classes: how many there are; whether it is labels; and the
    label that is ignored.
    """
    for op in forward.consumers[name]:
        slot = op.inputs.index(name)
        lookup, operand = lookup_of(forward, op, slot), forward.constants.get(op.inputs[slot - 1])
        match op.op_type, slot:
            case _ if lookup is not None:
                yield min(lookup.sizes), lookup.is_by_class, op.attribute("ignore_index")
            case "Equal", _ if operand is not None and operand.size > 1:
                # A one-hot form is made with all classes; one number is a certain label (padding), and no bound.
                yield operand.size, np.array_equal(operand.ravel(), np.arange(operand.size)), None
            case op_type, 0 if op_type in RESHAPES | COPYING:
                yield from _bounds(forward, op.outputs[0])
