"""Losses over classes: the label's class is picked by comparison, so that the classes can be cut (a vocabulary).

Scores are [N, C, d...], labels [N, d...]. A label that is no class, as ``ignore_index`` may be, picks nothing.
"""

from __future__ import annotations

import numpy as np

from planner.graph.core.attributes import integer
from planner.graph.core.emitter import Emitter
from planner.graph.core.model import DType, Op
from planner.graph.decompositions.parts.softmax import log_softmax_of
from planner.graph.decompositions.registry import Purpose, stands_for


@stands_for("SoftmaxCrossEntropyLoss", purpose=Purpose.PARTS)
def softmax_cross_entropy_loss(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """NegativeLogLikelihoodLoss of LogSoftmax over dim 1; the logarithms are its second output."""
    log_p = log_softmax_of(emitter, op.inputs[0], 1)
    return (_negative_log_likelihood(emitter, op, log_p), log_p)


@stands_for("NegativeLogLikelihoodLoss", purpose=Purpose.PARTS)
def negative_log_likelihood_loss(emitter: Emitter, op: Op) -> tuple[str, ...] | None:
    """- weight[label] * x[label], summed, averaged by weight, or neither."""
    return (_negative_log_likelihood(emitter, op, op.inputs[0]),)


def _negative_log_likelihood(emitter: Emitter, op: Op, log_p: str) -> str:
    labels, weights = op.inputs[1], op.inputs[2] if len(op.inputs) > 2 else ""
    shape, dtype = emitter.shape(log_p), emitter.dtype(log_p)
    kind = emitter.dtype(labels)
    column = emitter.reshape(labels, (shape[0], 1, *shape[2:]), "column")
    names = np.arange(shape[1], dtype=kind.value).reshape(1, shape[1], *(1 for _ in shape[2:]))
    # An ignored label may be no class: a comparison picks nothing then, where a GatherElements would read beyond.
    is_label = emitter.each("Equal", "is_label", column, emitter.constant(names, "classes"), dtype=DType.BOOL)
    zero = emitter.scalar(0.0, dtype, "zero")
    picked = _sum_classes(emitter, emitter.each("Where", "at_label", is_label, log_p, zero), "picked")
    weight = ""
    if weights:
        by_class = emitter.reshape(weights, (1, shape[1], *(1 for _ in shape[2:])), "by_class")
        weight = _sum_classes(emitter, emitter.each("Where", "weight_at_label", is_label, by_class, zero), "weight")
    if op.attribute("ignore_index") is not None:
        ignored = integer(op, "ignore_index")
        is_ignored = emitter.each(
            "Equal", "is_ignored", labels, emitter.scalar(ignored, kind, "ignore_index"), dtype=DType.BOOL
        )
        counted = weight or emitter.scalar(1.0, dtype, "one")
        weight = emitter.each("Where", "counted", is_ignored, zero, counted)
        picked = emitter.each("Where", "kept", is_ignored, zero, picked)
    loss = emitter.each("Neg", "loss", emitter.each("Mul", "weighted", picked, weight) if weight else picked)
    reduction = op.attribute("reduction", "mean")
    axes = range(len(shape) - 1)
    if reduction == "none":
        return loss
    if reduction == "sum":
        return emitter.reduce("ReduceSum", loss, axes, "total", keepdims=False)
    if not weight:
        return emitter.reduce("ReduceMean", loss, axes, "mean", keepdims=False)
    total = emitter.reduce("ReduceSum", loss, axes, "total", keepdims=False)
    return emitter.each("Div", "mean", total, emitter.reduce("ReduceSum", weight, axes, "weights", keepdims=False))


def _sum_classes(emitter: Emitter, x: str, part: str) -> str:
    return emitter.reduce("ReduceSum", x, (1,), part, keepdims=False)
