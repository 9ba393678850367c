"""Losses by labels as com.microsoft has them, forward and backward."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from planner.graph.core.attributes import integer, refuse, text
from planner.graph.core.model import Op
from planner.graph.decompositions.gradient.labelled import Labelled, labelled
from planner.training.doors.walk import Lowering, Walk


def _beside(walk: Walk, op: Op, log_p: str, labels: str, options: list[str]) -> Labelled:
    emit = walk.builder
    weights = options[0] if options and options[0] else None
    ignored = op.attribute("ignore_index")
    index = integer(op, "ignore_index", 0) if ignored is not None else None
    if len(options) > 1 and options[1]:
        value = emit.value(options[1])
        if value is None:
            raise refuse(op, "its ignore_index is not a known constant")
        index = int(value)
    # Most models are written with -1 or -100 for "none": no label is negative, so nothing is ignored then.
    return labelled(emit, log_p, labels, weights, index)


def _cross_entropy_gradient(walk: Walk, op: Op) -> tuple[str, ...]:
    dy, log_p, labels, *options = op.inputs
    beside = _beside(walk, op, log_p, labels, options)
    return (beside.logits_gradient(beside.per_position(dy, text(op, "reduction", "mean"))),)


def _cross_entropy_forward(walk: Walk, op: Op) -> tuple[str, ...]:
    emit, (scores, labels, *options) = walk.builder, op.inputs
    log_p = emit.one("LogSoftmax", [scores], emit.shape(scores), emit.dtype(scores), attributes={"axis": 1})
    beside = _beside(walk, op, log_p, labels, options)
    forms = {"mean": beside.mean, "sum": beside.sum, "none": beside.values}
    return forms[text(op, "reduction", "mean")](), log_p


LOWERINGS: Final[Mapping[str, Lowering]] = MappingProxyType(
    {
        "SoftmaxCrossEntropyLossGrad": _cross_entropy_gradient,
        "SoftmaxCrossEntropyLossInternal": _cross_entropy_forward,
        "SoftmaxCrossEntropyLossInternalGrad": _cross_entropy_gradient,
    }
)
"""By operator."""
