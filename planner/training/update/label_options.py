"""Options of a loss by labels, checked against the model: where its classes lie, and which input its labels are."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TypeVar

from planner.errors import UsageError
from planner.graph.core.attributes import label
from planner.graph.core.dependence import sources
from planner.graph.core.model import Graph
from planner.options.training import LabelOptions
from planner.training.update.class_axis import class_axis
from planner.training.update.losses import BY_LABELS, loss_function
from planner.training.update.next_token import tokens_of

Labels = TypeVar("Labels", bound=LabelOptions)


def settled(
    forward: Graph,
    output: str,
    loss: str,
    options: Labels,
    *,
    command: str = "tofu grad MODEL",
) -> Labels:
    """The options with the dim of the classes and the input of tokens named; others than of labels as they are.

    Args:
        forward: the model, as the file has it.
        output: what the loss looks at.
        loss: its name.
        options: what is asked; settled ones stay as they are.
        command: how the commands begin that a refusal prints.

    Raises:
        UsageError: the model does not tell, see ``class_axis`` and ``next_token``; or ``nll`` of probabilities.
    """
    if loss_function(loss) not in BY_LABELS or len(forward.tensors[output].shape) < 2:
        return options
    maker = forward.made_by(sources(forward, output)[-1], "Softmax")
    if loss == "nll" and maker is not None:
        raise UsageError(
            f"nll takes log-probabilities; output {output!r} is of probabilities: {label(maker)} makes it",
            hint=f"{command} --loss softmax_cross_entropy --loss-input {shlex.quote(maker.inputs[0])} takes its logits",
        )
    axis = class_axis(forward, output, stated=options.class_axis, command=f"{command} --loss {loss}")
    shift = options.shift or options.tokens is not None
    tokens = tokens_of(forward, output, axis, stated=options.tokens) if shift else None
    return replace(options, class_axis=axis, shift=shift, tokens=tokens)
