"""The forward ops of a training step: which of the model's ops are replaced, and by what.

- Batch normalization by batch statistics written as sums, its running statistics become state.
- ReduceMean and GlobalAveragePool by a sum and a Mul, because partial means cannot be added up.
- LayerNormalization is given its optional outputs, which its backward reads.

Everything else stays as it is. The ops are of the training graph's opset, see ``older_opsets``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from planner.errors import UnsupportedError
from planner.graph.core.attributes import axis_of, draws, integer, refuse
from planner.graph.core.builder import Builder
from planner.graph.core.model import DType, Op
from planner.graph.core.traits import STATISTICS
from planner.graph.decompositions.batch_statistics import normalised_by_batch
from planner.training.gradients.refusals import Refusals
from planner.training.rules.reduction import reduced_axes


@dataclass(frozen=True, slots=True)
class Lowered:
    """The forward part of a training step, as its builder holds it."""

    saved: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By op name: tensors for the op's backward, by what they are."""
    updates: Mapping[str, str] = field(default_factory=dict)
    """Running statistics and what replaces them after the step."""


def lower(builder: Builder, ops: tuple[Op, ...], *, batch_statistics: bool, training: str | None = None) -> Lowered:
    """Emit the forward ops of a training step.

    Args:
        builder: of the forward graph.
        ops: of the forward graph.
        batch_statistics: whether batch normalization takes the batch's statistics; else the running ones.
        training: a boolean scalar; where it is false, batch normalization takes its running statistics all the same,
            and Dropout drops nothing. None: true.

    Raises:
        UnsupportedError: forms that cannot be part of a training step, a batch normalization of mixed dtypes: all of
            them.
    """
    saved: dict[str, Mapping[str, str]] = {}
    updates: dict[str, str] = {}
    refusals = Refusals()
    for op in ops:
        with builder.scope(op.name):
            try:
                lower_op(
                    builder, op, batch_statistics=batch_statistics, saved=saved, updates=updates, training=training
                )
            except UnsupportedError as error:
                refusals.add(error.what, error.hint)
                builder.replay(op)
    refusals.raise_any()
    return Lowered(saved, updates)


def lower_op(
    builder: Builder,
    op: Op,
    *,
    batch_statistics: bool,
    saved: dict[str, Mapping[str, str]],
    updates: dict[str, str],
    training: str | None = None,
) -> None:
    """Emit one forward op; see ``lower``.

    Raises:
        UnsupportedError: a form that cannot be part of a training step.
    """
    match op.op_type if not op.domain else "":
        case op_type if batch_statistics and op_type in STATISTICS:
            saved[op.name] = _batch_normalization(builder, op, updates, training)
        case "LayerNormalization":
            saved[op.name] = _layer_normalization(builder, op)
        case "Dropout" if _drops(builder, op):
            saved[op.name] = _dropout(builder, op, training)
        case "DFT":
            op = _with_axis(builder, op)
            builder.replay(op)
            saved[op.name] = {"axis": op.inputs[2]}
        case "ReduceMean":
            axes = reduced_axes(builder, op)
            _mean(builder, op, axes, keepdims=bool(integer(op, "keepdims", 1)))
        case "GlobalAveragePool":
            _mean(builder, op, tuple(range(2, builder.rank(op.inputs[0]))), keepdims=True)
        case _:
            builder.replay(op)


def _with_axis(builder: Builder, op: Op) -> Op:
    """A DFT that states its axis, which its backward reads."""
    if op.has_input(2):
        return op
    operands = (*op.inputs[:2], *("",) * (2 - len(op.inputs)), builder.constant(np.array(-2, np.int64), "int.-2"))
    return replace(op, inputs=operands)


def _drops(builder: Builder, op: Op) -> bool:
    """Whether a Dropout is in training mode.

    Raises:
        UnsupportedError: nothing says so when the graph is built.
    """
    is_drawn = draws(op, builder.value)
    if is_drawn is None:
        raise refuse(op, "its training_mode is not a known constant", hint="choose dropout 'train' or 'off'")
    return is_drawn


def _dropout(builder: Builder, op: Op, training: str | None) -> Mapping[str, str]:
    """The op with its mask, which its backward reads; with ratio 0 where it does not train."""
    y, mask = [*op.outputs, ""][:2]
    if training is not None:
        ratio = op.inputs[1] or builder.scalar(0.5, DType.FLOAT32)
        ratio = builder.where(training, ratio, builder.scalar(0.0, ratio))
        op = replace(op, inputs=(op.inputs[0], ratio, op.inputs[2]))
    mask = mask or builder.declare(f"{y}.mask", builder.shape(op.inputs[0]), DType.BOOL)
    builder.replay(replace(op, outputs=(y, mask)))
    return {"mask": mask}


def _mean(builder: Builder, op: Op, axes: tuple[int, ...], *, keepdims: bool) -> None:
    x = op.inputs[0]
    count = math.prod(builder.shape(x)[axis] for axis in axes)
    if not count:
        raise refuse(op, f"it is a mean of nothing: its input is {list(builder.shape(x))}")
    total = builder.reduce_sum(x, axes, keepdims=keepdims)
    builder.define(op.outputs[0], builder.scale(total, 1.0 / count))


def _batch_normalization(builder: Builder, op: Op, updates: dict[str, str], training: str | None) -> Mapping[str, str]:
    """By the batch's own statistics; of several ops with the same running ones each follows the one before it."""
    x, statistics = op.inputs[0], op.inputs[3:]
    if len({builder.dtype(name) for name in op.inputs}) > 1:
        raise refuse(op, "its inputs are of several dtypes")
    running = [updates.get(name, name) for name in statistics]
    norm = normalised_by_batch(builder, op, x, running, training=training)
    builder.define(op.outputs[0], norm.y)
    for position, (statistic, following) in enumerate(zip(statistics, norm.following, strict=True)):
        if statistic in builder.constants:
            updates[statistic] = following
        if len(op.outputs) > position + 1 and op.outputs[position + 1]:
            builder.define(op.outputs[position + 1], following)
    return {"centred": norm.centred, "deviation": norm.deviation, "slope": norm.slope}


def _layer_normalization(builder: Builder, op: Op) -> Mapping[str, str]:
    """The op with all three outputs; mean and 1/σ are float32 unless ``stash_type`` says bfloat16."""
    shape = builder.shape(op.inputs[0])
    axis = axis_of(op, len(shape), -1)
    reduced_shape = tuple(1 if dim >= axis else size for dim, size in enumerate(shape))
    dtype = DType.BFLOAT16 if integer(op, "stash_type", 1) == 16 else DType.FLOAT32
    outputs = [*op.outputs, "", ""][:3]
    for position, hint in ((1, "mean"), (2, "inverse_deviation")):
        outputs[position] = outputs[position] or builder.declare(f"{op.outputs[0]}.{hint}", reduced_shape, dtype)
    builder.replay(replace(op, outputs=tuple(outputs)))
    return {"mean": outputs[1], "inverse": outputs[2]}
