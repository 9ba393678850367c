"""Cross entropy by labels: what the losses and the ONNX loss operators have in common.

For log-probabilities l [N, C, ...], labels t [N, ...] and weights w [C] (1 if absent), where positions with
t = ignore_index count for nothing:

    value_i = -w[t_i] l[i, t_i]         mean = Σ value_i / Σ w[t_i]

(ONNX NegativeLogLikelihoodLoss; SoftmaxCrossEntropyLoss is the same of LogSoftmax.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from planner.graph.model import DType
from planner.training.builder import Builder


@dataclass(frozen=True, slots=True)
class Labelled:
    """Log-probabilities beside the labels that they are looked up with."""

    emit: Builder
    log_p: str
    is_label: str
    """Booleans of the shape of ``log_p``: whether this class is the label, and is not ignored."""
    weights: str | None
    """[C, 1, ...]."""
    counts_all: bool
    """Whether every position has weight 1: nothing is ignored and there are no weights."""

    def values(self) -> str:
        """``-w[t] l[t]`` of every position, [N, ...]."""
        emit, zero = self.emit, self.emit.scalar(0.0, self.log_p)
        weighted = self.log_p if self.weights is None else emit.mul(self.log_p, self.weights, "weighted")
        # Not a product with the one-hot form: 0 * -inf is NaN.
        picked = emit.where(self.is_label, weighted, zero, "picked")
        return emit.unary("Neg", emit.reduce_sum(picked, [1]))

    def sum(self) -> str:
        """Σ of the values."""
        emit, zero = self.emit, self.emit.scalar(0.0, self.log_p)
        weighted = self.log_p if self.weights is None else emit.mul(self.log_p, self.weights, "weighted")
        picked = emit.where(self.is_label, weighted, zero, "picked")
        return emit.unary("Neg", emit.reduce_sum(picked, range(emit.rank(picked))))

    @property
    def positions(self) -> int:
        """How many there are, ignored ones included."""
        shape = self.emit.shape(self.log_p)
        return math.prod((shape[0], *shape[2:]))

    def class_weights(self) -> str:
        """``w[c]`` where c is the label, else 0; of the shape of ``log_p``."""
        emit = self.emit
        if self.weights is None:
            return emit.cast(self.is_label, emit.dtype(self.log_p))
        return emit.where(self.is_label, self.weights, emit.scalar(0.0, self.log_p), "label_weights")

    def total_weight(self) -> str:
        """``Σ w[t]``, a scalar."""
        weights = self.class_weights()
        return self.emit.reduce_sum(weights, range(self.emit.rank(weights)), hint="total_weight")

    def mean(self) -> str:
        """The weighted mean of the values."""
        if self.counts_all:
            # The sign and the mean in one factor: partial sums can be added up, partial means cannot.
            emit, zero = self.emit, self.emit.scalar(0.0, self.log_p)
            picked = emit.where(self.is_label, self.log_p, zero, "picked")
            return emit.scale(emit.reduce_sum(picked, range(emit.rank(picked))), -1.0 / self.positions)
        return self.emit.div(self.sum(), self.total_weight(), "mean")

    def per_position(self, dy: str | None, reduction: str) -> str | None:
        """The gradient of each position's value: a scalar or [N, 1, ...]; None for 1.

        Args:
            dy: gradient of the reduced value; None for 1.
            reduction: "mean", "sum" or "none".
        """
        emit = self.emit
        if reduction == "none":
            assert dy is not None, "an unreduced loss has a gradient of its own shape"
            return emit.unsqueeze(dy, [1])
        if reduction == "sum":
            return dy
        if self.counts_all:
            share = emit.scalar(1.0 / self.positions, self.log_p)
            return share if dy is None else emit.mul(dy, share)
        one = emit.scalar(1.0, self.log_p)
        return emit.div(one if dy is None else dy, self.total_weight(), "share")

    def log_p_gradient(self, share: str | None) -> str:
        """``-w[t] share`` at the label, 0 elsewhere."""
        weights = self.emit.unary("Neg", self.class_weights())
        return weights if share is None else self.emit.mul(weights, share)

    def logits_gradient(self, share: str | None) -> str:
        """``share w[t] (p - one_hot)``, where ``log_p`` is LogSoftmax of the logits along dim 1."""
        emit, weights = self.emit, self.class_weights()
        p = emit.unary("Exp", self.log_p, "softmax")
        if not self.counts_all:
            p = emit.mul(p, emit.reduce_sum(weights, [1], keepdims=True))
        difference = emit.sub(p, weights)
        return difference if share is None else emit.mul(difference, share)


def labelled(emit: Builder, log_p: str, labels: str, weights: str | None, ignore_index: int | None) -> Labelled:
    """Log-probabilities [N, C, ...] beside integer labels [N, ...]; ``weights`` is [C]."""
    shape = emit.shape(log_p)
    classes, rest = shape[1], len(shape) - 2
    dtype = np.int32 if emit.dtype(labels) is DType.INT32 else np.int64
    names = np.arange(classes, dtype=dtype).reshape(classes, *(1 for _ in range(rest)))
    column = emit.unsqueeze(labels, [1])
    is_label = emit.compare("Equal", column, emit.constant(names, f"range.{classes}"))
    if ignore_index is not None and 0 <= ignore_index < classes:
        ignored = emit.compare("Equal", column, emit.constant(np.array(ignore_index, dtype), f"int.{ignore_index}"))
        counted = emit.one("Not", [ignored], emit.shape(ignored), DType.BOOL)
        is_label = emit.compare("And", is_label, counted)
    aligned = None
    if weights is not None:
        aligned = emit.unsqueeze(weights, range(1, rest + 1)) if rest else weights
    return Labelled(emit, log_p, is_label, aligned, weights is None and ignore_index is None)
