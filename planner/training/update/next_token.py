"""Training by the next token: the labels are the model's own input, one position on.

Logits [batch, time, words] beside tokens [batch, time]: position t is judged by token t + 1, and the last position of
each sample, which has none, is left out of the mean.
"""

from __future__ import annotations

from planner.errors import UsageError, did_you_mean
from planner.graph.core.attributes import axis_of
from planner.graph.core.model import Graph, of_types
from planner.graph.core.traits import COPYING, RESHAPES
from planner.walk import walk


def tokens_of(forward: Graph, output: str, axis: int, *, stated: str | None = None) -> str:
    """The input that holds the tokens.

    It is the integer input of the logits' batch and time that a table of as many rows as there are classes is looked
    up by; or, of a model without such a table, the only integer input of these sizes.

    Args:
        forward: the model, as the file has it.
        output: the logits.
        axis: their dim of classes.
        stated: the input as the user says it.

    Raises:
        UsageError: the logits have no dims of batch and time; there is no such input, or several.
    """
    shape = forward.tensors[output].shape
    positions = (*shape[:axis], *shape[axis + 1 :])
    if len(positions) != 2 or positions[1] < 2:
        raise UsageError(
            f"--shift takes logits of batch, time and words; output {output!r} is {list(shape)}",
            facts=(f"with its classes in dim {axis} there are {list(positions)} labels",),
            hint="without --shift the labels are an input of their own",
        )
    integers = [name for name in forward.inputs if forward.tensors[name].dtype.value in ("int32", "int64")]
    fitting = [name for name in integers if forward.tensors[name].shape == positions]
    facts = tuple(f"{name!r}: {list(forward.tensors[name].shape)}" for name in integers)
    if stated is not None:
        if stated not in fitting:
            raise UsageError(
                f"--tokens {stated}: is no integer input {list(positions)}, as the logits have batch and time",
                facts=facts,
                hint=did_you_mean(stated, fitting),
            )
        return stated
    # Tokens look up a table with a row for each class; positions and segments look up others.
    words = [name for name in fitting if shape[axis] in _rows(forward, name)]
    candidates = words or fitting
    if len(candidates) != 1:
        subject = "several inputs" if candidates else "no input of the model"
        raise UsageError(
            f"--shift: {subject} may be the tokens: integers {list(positions)}, as the logits have batch and time",
            facts=facts,
            hint="say which one is: --tokens NAME" if candidates else "without --shift the labels are an input",
        )
    return candidates[0]


def _rows(forward: Graph, name: str) -> set[int]:
    """The numbers of rows of the tables that an input, perhaps cast or laid out anew, is looked up in."""
    laying_out = COPYING | RESHAPES | {"Clip"}
    indices = walk([name], lambda index: [op.outputs[0] for op in forward.consumers[index] if of_types(op, laying_out)])
    readers = [op for index in indices for op in forward.consumers[index] if op.inputs[1:2] == (index,)]
    tables = [(op, forward.tensors[op.inputs[0]]) for op in readers if of_types(op, ("Gather",))]
    return {table.shape[axis_of(op, len(table.shape), 0)] for op, table in tables if table.dtype.is_float}
