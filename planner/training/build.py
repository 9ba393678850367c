"""From a forward model to one step of training."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Final, Literal

import numpy as np

from planner.errors import UnsupportedError, UsageError
from planner.graph.check import check_graph
from planner.graph.model import DType, Graph, StatePair, Tensor
from planner.graph.protos import numpy_dtype
from planner.training import rules
from planner.training.attributes import axis_of
from planner.training.autodiff import backward
from planner.training.batch import with_batch
from planner.training.builder import Builder
from planner.training.losses import loss_function
from planner.training.lowering import OLDEST_OPSET, OPSET, lower
from planner.training.optimizers import Update, optimizer_function

INPUTS: Final = "tofu.inputs"
"""Note that tells how sample data for each input is drawn, as JSON: ``{"labels": {"integers_below": 10}, "x":
{"normal": true}, "mask": {"booleans": true}, "learning_rate": {"value": 0.05}}``."""


def build_training_graph(
    forward: Graph,
    *,
    loss: str,
    optimizer: str,
    learning_rate: float,
    momentum: float = 0.9,
    batchnorm: Literal["train", "frozen"] = "train",
    batch: int | None = None,
    output: str | None = None,
) -> Graph:
    """The graph of one training step, in standard operators.

    Parameters are the float initializers of rank 1 or more that the file does not compute and that the loss depends on
    differentiably.

    Args:
        forward: a model without state.
        loss: its name, see ``losses.LOSSES``.
        optimizer: its name, see ``optimizers.OPTIMIZERS``.
        learning_rate: default value of the data input ``learning_rate``.
        momentum: how much of the accumulated gradient the momentum optimizer keeps.
        batchnorm: "train": BatchNormalization normalises by its batch, and its running statistics are state (see
            ``lowering``); "frozen": by its running statistics, which stay as they are.
        batch: new number of samples, see ``batch.with_batch``; None: that of the model.
        output: what the loss looks at; None: the model's only output.

    Returns:
        Inputs: the model's, the loss's target, ``learning_rate``, and state: parameters, what the optimizer remembers
        of them, running statistics. Outputs: ``loss``, the model's outputs, and ``NAME.next`` for each state.
        ``Graph.initial`` holds the state before the first step.

    Raises:
        UsageError: an unknown name, or a number that cannot be used.
        UnsupportedError: the batch cannot be changed; ops that have no gradient: all of them; nothing to train.
    """
    make_loss, step = loss_function(loss), optimizer_function(optimizer)
    _check_numbers(learning_rate, momentum)
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
    target = _chosen_output(forward, output)
    if batch is not None:
        forward = with_batch(forward, batch)

    builder = Builder(forward)
    lowered = lower(builder, forward.ops, opset=forward.opset, batch_statistics=batchnorm == "train")
    scalar_loss = make_loss(builder, target)
    rate = builder.declare("learning_rate", (), DType.FLOAT32)
    states: list[tuple[str, str]] = []
    memories: list[tuple[str, str]] = []
    initial: dict[str, np.ndarray | None] = {rate: np.array(learning_rate, np.float32)}
    samples: dict[str, Mapping[str, object]] = {
        **{name: _sample(forward, name) for name in forward.inputs},
        scalar_loss.target: scalar_loss.sample,
        rate: {"value": learning_rate},
    }

    def update(parameter: str, gradient: str) -> None:
        """A parameter's update stands right after its gradient, which is then needed no longer."""
        with builder.scope(f"{parameter}.update"):
            own_rate = builder.cast(rate, builder.dtype(parameter))
            updated = step(Update(builder, parameter, gradient, own_rate, momentum))
        states.append((parameter, updated.parameter))
        for memory, following in updated.memory.values():
            memories.append((memory, following))
            initial[memory] = _zeros(builder.tensors[memory], known=forward.constants[parameter] is not None)
            if initial[memory] is None:
                samples[memory] = {"value": 0.0}

    candidates = [name for name in forward.constants if _may_be_trained(forward, name)]
    backward(
        builder,
        forward.ops,
        {target: scalar_loss.gradient},
        [name for name in candidates if name not in lowered.updates],
        rules=rules.standard(),
        saved=lowered.saved,
        ready=update,
    )
    if not states:
        raise UnsupportedError(
            f"output {target!r} depends on no parameter, so there is nothing to train",
            facts=("parameters are float initializers of rank 1 or more",),
        )
    order = {name: index for index, name in enumerate(forward.constants)}
    states.sort(key=lambda pair: order[pair[0]])
    memories.reverse()
    pairs = [*states, *memories, *lowered.updates.items()]
    initial.update((name, forward.constants[name]) for name, _ in (*states, *lowered.updates.items()))
    for name, _ in (*states, *lowered.updates.items()):
        builder.take(name)
    state = tuple(StatePair(current, builder.output(following, f"{current}.next")) for current, following in pairs)
    result = builder.finish(
        inputs=(*forward.inputs, scalar_loss.target, rate, *(pair.current for pair in state)),
        outputs=(builder.output(scalar_loss.value, "loss"), *forward.outputs, *(pair.following for pair in state)),
        state=state,
        initial={**forward.initial, **initial},
        opset=max(OPSET, forward.opset),
        notes={**forward.notes, INPUTS: json.dumps(samples)},
    )
    check_graph(result)
    return result


def _check_numbers(learning_rate: float, momentum: float) -> None:
    if not (math.isfinite(learning_rate) and learning_rate > 0):
        raise UsageError(f"the learning rate is {learning_rate}; it must be a positive number")
    if not 0 <= momentum < 1:
        raise UsageError(f"the momentum is {momentum}; it must be at least 0 and below 1")


def _chosen_output(forward: Graph, output: str | None) -> str:
    if output is None and len(forward.outputs) == 1:
        return forward.outputs[0]
    known = tuple(
        f"{name!r}: {list(forward.tensors[name].shape)} of {forward.tensors[name].dtype.value}"
        for name in forward.outputs
    )
    if output is None:
        raise UsageError(f"the model has {len(known)} outputs", facts=known, hint="say which one the loss looks at")
    if output not in forward.outputs:
        raise UsageError(f"the model has no output {output!r}", facts=known)
    return output


def _may_be_trained(forward: Graph, name: str) -> bool:
    tensor = forward.tensors[name]
    return tensor.dtype.is_float and bool(tensor.shape) and name not in forward.folded


def _zeros(tensor: Tensor, *, known: bool) -> np.ndarray | None:
    """Zeros; None beside a parameter whose value was not loaded: such a model may be too large for any file."""
    return np.zeros(tensor.shape, numpy_dtype(tensor.dtype)) if known else None


def _sample(forward: Graph, name: str) -> Mapping[str, object]:
    """How sample data of an input is drawn: indices within the tables that they are looked up in."""
    dtype = forward.tensors[name].dtype
    if dtype.is_float:
        return {"normal": True}
    if dtype is DType.BOOL:
        return {"booleans": True}
    tables = [
        forward.tensors[op.inputs[0]].shape[axis_of(op, len(forward.tensors[op.inputs[0]].shape), 0)]
        for op in forward.consumers[name]
        if op.op_type == "Gather" and op.inputs[1] == name
    ]
    return {"integers_below": min(tables, default=2)}
